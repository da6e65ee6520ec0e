use policy::code as oracle;
use policy::placement::Code;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::ErrorKind;

use super::Coder;

const DATA_MIN: usize = Code::DATA_MIN as usize;
const DATA_MAX: usize = Code::DATA_MAX as usize;
const PARITY_MAX: usize = Code::PARITY_MAX as usize;

/// All fragments of an object with random data; the oracle makes the parity.
fn object(data: usize, parity: usize, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut fragments = vec![vec![0; len]; data];
    fragments.iter_mut().for_each(|bytes| random.fill_bytes(bytes));
    let slices: Vec<&[u8]> = fragments.iter().map(Vec::as_slice).collect();
    let parities: Vec<_> = (0..parity).map(|j| oracle::parity(j, &slices)).collect();
    fragments.extend(parities);
    fragments
}

/// The parity fragments of these data fragments. Their buffers were dirty.
fn encoded(coder: &Coder, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0xa5; data[0].len()]; coder.parity()];
    coder.encode(&data, &mut slices_mut(&mut parity)).expect("the coder's numbers");
    parity
}

fn slices_mut(fragments: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    fragments.iter_mut().map(Vec::as_mut_slice).collect()
}

/// The fragments `wanted` of `object`, recovered from `have`. Their buffers were dirty.
fn recovered(coder: &Coder, object: &[Vec<u8>], have: &[usize], wanted: &[usize]) -> Vec<Vec<u8>> {
    let have: Vec<(usize, &[u8])> = have.iter().map(|&i| (i, object[i].as_slice())).collect();
    let mut found = vec![vec![0xa5; object[0].len()]; wanted.len()];
    let mut outputs: Vec<_> = wanted.iter().copied().zip(slices_mut(&mut found)).collect();
    coder.recover(&have, &mut outputs).expect("different fragments");
    found
}

/// (data, parity, length, a seed, all indices in random order).
fn codes() -> impl Strategy<Value = (usize, usize, usize, u64, Vec<usize>)> {
    let sizes =
        (DATA_MIN..=DATA_MAX).prop_flat_map(|data| (Just(data), 1..=PARITY_MAX.min(data - 1)));
    sizes.prop_flat_map(|(data, parity)| {
        let order = Just((0..data + parity).collect::<Vec<_>>()).prop_shuffle();
        (Just(data), Just(parity), 0..700usize, any::<u64>(), order)
    })
}

proptest! {
    #[test]
    fn equals_the_oracle((data, parity, len, seed, order) in codes(), wanted in 0..=PARITY_MAX) {
        let coder = Coder::new(data, parity).unwrap();
        let object = object(data, parity, len, seed);
        prop_assert_eq!(&encoded(&coder, &object[..data])[..], &object[data..]);

        let (have, lost) = order.split_at(data);
        let lost = &lost[..wanted.min(parity)];
        let slices: Vec<(usize, &[u8])> = have.iter().map(|&i| (i, object[i].as_slice())).collect();
        let found = recovered(&coder, &object, have, lost);
        for (&index, found) in lost.iter().zip(&found) {
            prop_assert_eq!(found, &oracle::recover(data, &slices, index));
            prop_assert_eq!(found, &object[index]);
        }
    }

    #[test]
    fn an_update_equals_encoding_anew((data, parity, len, seed, _) in codes(), index in 0..DATA_MAX) {
        let coder = Coder::new(data, parity).unwrap();
        let index = index % data;
        let mut object = object(data, parity, len, seed);
        let mut parities = object.split_off(data);
        let mut delta = vec![0; len];
        Xoshiro256PlusPlus::seed_from_u64(!seed).fill_bytes(&mut delta);
        coder.update(index, &delta, &mut slices_mut(&mut parities)).unwrap();
        for (byte, delta) in object[index].iter_mut().zip(&delta) {
            *byte ^= delta;
        }
        prop_assert_eq!(parities, encoded(&coder, &object));
    }
}

#[test]
fn recovers_every_loss_pattern() {
    for (data, parity) in [(2, 1), (4, 2), (3, 2), (6, 3), (8, 4), (10, 4)] {
        let coder = Coder::new(data, parity).unwrap();
        // A whole number of no vector: the kernels' last bytes take part.
        let object = object(data, parity, 131, 7);
        let patterns = (1..1u32 << (data + parity)).filter(|p| p.count_ones() as usize <= parity);
        for pattern in patterns {
            let (lost, left): (Vec<usize>, Vec<usize>) =
                (0..data + parity).partition(|i| pattern >> i & 1 == 1);
            let found = recovered(&coder, &object, &left[..data], &lost);
            for (index, found) in lost.iter().zip(&found) {
                assert_eq!(
                    found, &object[*index],
                    "{index} of ({data}, {parity}) without {lost:?}"
                );
            }
        }
    }
}

/// Byte x of data fragment i, of 75 bytes, is (75 i + x) * 37 + 11 modulo 256.
///
/// ISA-L 2.30.0 (Debian's libisal-dev 2.30.0-5) computed the parity: gf_gen_cauchy1_matrix(a, 6, 4),
/// ec_init_tables(4, 2, a + 16, tables), ec_encode_data(75, 4, 2, tables, data, parity).
#[test]
fn parity_is_that_of_isal() {
    let data: Vec<Vec<u8>> =
        (0..4).map(|i| (0..75).map(|x| (((75 * i + x) * 37 + 11) % 256) as u8).collect()).collect();
    let golden = [
        "74fd33dccdfa883c310d05de21954479da0748364ed5a7923076cfae0ec5e278edf538401e63\
         ffa51906671db8e2dd512f558b1d39a78f6762b5e4327c4c272ae5dea43297a666ad129ab4",
        "c6ec19db359d83e92d934c64a1e55002eff6db68d9d51dc0e951240fe96b20c6ee0cb02857da\
         d1c1333a9fb4e6b7781c66ee0b3f8b5c0349f18173fc609e62de0e5b43a1a298f9219ac9fd",
    ];
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    for (j, parity) in encoded(&Coder::new(4, 2).unwrap(), &data).iter().enumerate() {
        assert_eq!(hex(parity), golden[j]);
        assert_eq!(hex(&oracle::parity(j, &slices)), golden[j]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn refuses_sizes_out_of_bounds() {
    for (data, parity) in [
        (0, 0),
        (1, 1),
        (2, 0),
        (2, 2),
        (4, 4),
        (16, 5),
        (17, 4),
        (usize::MAX, 1),
        (16, usize::MAX),
    ] {
        let error = Coder::new(data, parity).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let message = error.to_string();
        assert!(message.contains(" fragments"), "{message}");
    }
    for data in DATA_MIN..=DATA_MAX {
        for parity in 1..=PARITY_MAX.min(data - 1) {
            let coder = Coder::new(data, parity).unwrap();
            assert_eq!((coder.data(), coder.parity()), (data, parity));
        }
    }
}

/// The message of the refusal.
fn refusal(result: volume::Result<()>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn refuses_wrong_counts_lengths_and_indices() {
    let coder = Coder::new(3, 2).unwrap();
    let d: &[u8] = &[1; 5];
    let short: &[u8] = &[1; 4];
    let encode = |data: &[&[u8]], parity: &[usize]| {
        let mut buffers: Vec<Vec<u8>> = parity.iter().map(|&len| vec![9; len]).collect();
        let refusal = refusal(coder.encode(data, &mut slices_mut(&mut buffers)));
        assert!(buffers.iter().flatten().all(|&byte| byte == 9), "an output changed");
        refusal
    };
    assert_eq!(encode(&[d, d], &[5, 5]), "the code takes 3 data fragments, not 2");
    assert_eq!(encode(&[d, d, d], &[5]), "the code takes 2 parity fragments, not 1");
    assert_eq!(encode(&[d, d, d], &[5, 5, 5]), "the code takes 2 parity fragments, not 3");
    assert_eq!(encode(&[d, d, short], &[5, 5]), "fragments of 5 and of 4 bytes in one call");
    assert_eq!(encode(&[d, d, d], &[5, 6]), "fragments of 5 and of 6 bytes in one call");

    let recover = |have: &[(usize, &[u8])], wanted: &[(usize, usize)]| {
        let mut buffers: Vec<Vec<u8>> = wanted.iter().map(|&(_, len)| vec![9; len]).collect();
        let indices = wanted.iter().map(|want| want.0);
        let mut outputs: Vec<_> = indices.zip(slices_mut(&mut buffers)).collect();
        let refusal = refusal(coder.recover(have, &mut outputs));
        assert!(buffers.iter().flatten().all(|&byte| byte == 9), "an output changed");
        refusal
    };
    let have = [(0, d), (1, d), (4, d)];
    assert_eq!(recover(&have[..2], &[(2, 5)]), "the code takes 3 remaining fragments, not 2");
    let four = [(0, d), (1, d), (4, d), (3, d)];
    assert_eq!(recover(&four, &[(2, 5)]), "the code takes 3 remaining fragments, not 4");
    assert_eq!(recover(&[(0, d), (1, d), (1, d)], &[(2, 5)]), "fragment 1 is given twice");
    assert_eq!(recover(&have, &[(2, 5), (2, 5)]), "fragment 2 is given twice");
    assert_eq!(recover(&have, &[(4, 5)]), "fragment 4 is given twice");
    assert_eq!(recover(&have, &[(5, 5)]), "fragments have indices 0 to 4, not 5");
    let far = [(0, d), (1, d), (usize::MAX, d)];
    assert!(recover(&far, &[(2, 5)]).starts_with("fragments have indices 0 to 4, not "));
    assert_eq!(recover(&have, &[(2, 6)]), "fragments of 5 and of 6 bytes in one call");
    assert_eq!(
        recover(&[(0, d), (1, short), (4, d)], &[(2, 5)]),
        "fragments of 5 and of 4 bytes in one call"
    );
    assert_eq!(
        recover(&[(0, d), (1, short), (4, d)], &[]),
        "fragments of 5 and of 4 bytes in one call"
    );
    coder.recover(&have, &mut []).expect("nothing to recover");

    let update = |index, delta: &[u8], parity: &[usize]| {
        let mut buffers: Vec<Vec<u8>> = parity.iter().map(|&len| vec![9; len]).collect();
        let refusal = refusal(coder.update(index, delta, &mut slices_mut(&mut buffers)));
        assert!(buffers.iter().flatten().all(|&byte| byte == 9), "an output changed");
        refusal
    };
    assert_eq!(update(3, d, &[5, 5]), "data fragments have indices 0 to 2, not 3");
    assert_eq!(update(0, d, &[5]), "the code takes 2 parity fragments, not 1");
    assert_eq!(update(0, d, &[5, 4]), "fragments of 5 and of 4 bytes in one call");
    assert_eq!(update(0, short, &[5, 5]), "fragments of 4 and of 5 bytes in one call");
}
