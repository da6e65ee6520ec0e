//! What calls cost the devices below, in operations and bytes.

use super::*;
use crate::Zeros;
use crate::layer::call::Op;

pub(super) const CASES: &[(&str, Case)] = &[("calls cost what they must", calls_cost)];

const PAGE: u64 = 4096;

/// The calls that move bytes or make them durable, with the bytes of each, since `from` calls were made.
fn made(calls: &TraceLog, from: usize) -> Vec<(Op, u64)> {
    let records = calls.records();
    let of_bytes = records[from..].iter().filter(|record| {
        matches!(
            record.call.op,
            Op::Read | Op::Write | Op::WriteDurable | Op::Zero | Op::SetLen | Op::Sync
        )
    });
    of_bytes.map(|record| (record.call.op, record.call.len)).collect()
}

/// On an object whose length is durable, and which is open.
fn calls_cost(harness: &mut dyn Harness) {
    let Some(calls) = harness.calls() else { return };
    let copies = harness.copies();
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        write(&*object, 0, &pattern(8 * PAGE as usize, 1)).await;
        sync(&*object).await;
        read(&*object, 0, 1).await;
        let page = pattern(PAGE as usize, 2);
        let count = || calls.records().len();

        let from = count();
        write(&*object, PAGE, &page).await;
        assert_eq!(made(&calls, from), vec![(Op::Write, PAGE); copies], "a write");
        let from = count();
        sync(&*object).await;
        assert_eq!(made(&calls, from), vec![(Op::Sync, 0); copies], "a sync");
        let from = count();
        write_durable(&*object, PAGE, &page).await;
        assert_eq!(made(&calls, from), vec![(Op::WriteDurable, PAGE); copies], "a durable write");
        let from = count();
        assert_eq!(read(&*object, PAGE, PAGE as usize).await, page);
        assert_eq!(made(&calls, from), [(Op::Read, PAGE)], "a read");
        let from = count();
        if object.zero(0, 4 * PAGE, Zeros::Free, IO).await.is_ok() {
            assert_eq!(made(&calls, from), vec![(Op::Zero, 4 * PAGE); copies], "zeros");
        }
        let from = count();
        object.align(0, PAGE, IO).await.expect("a volume aligns its copies");
        assert_eq!(made(&calls, from), [], "an alignment by a pool itself");
        let in_place = volume.create(&name("in-place"), &Intent::IN_PLACE).await.expect("new");
        write(&*in_place, 0, &page).await;
        sync(&*in_place).await;
        let from = count();
        in_place.align(0, PAGE, IO).await.expect("a volume aligns its copies");
        let calls_of = |op| if copies == 1 { vec![] } else { vec![op; copies] };
        let aligned = [calls_of((Op::Read, PAGE)), calls_of((Op::Sync, 0))].concat();
        assert_eq!(made(&calls, from), aligned, "an alignment of copies that are alike");
        let from = count();
        object.extents(0, 8 * PAGE).await.expect("a volume knows its extents");
        volume.limits();
        volume.space().await.expect("a volume knows its space");
        assert_eq!(made(&calls, from), [], "questions");
        let from = count();
        let data = IoBuf::from(&pattern(4 * PAGE as usize, 3)[..]);
        volume.write_whole(&name("whole"), &Intent::DATA, data, IO).await.expect("a new name");
        let written = made(&calls, from).into_iter().filter(|(op, _)| *op == Op::Write);
        let whole = written.filter(|&(_, len)| len == 4 * PAGE).count();
        assert_eq!(whole, copies, "a whole object is written once to each copy");
    });
}
