//! Serves the sessions of NBD clients in `testdata/nbd`, whole, cut short, and with single bytes changed.
//! `dev/fuzz/run nbd` searches further.

mod conversations;
mod entry;

/// The changes of each byte: of flags, and of numbers.
const CHANGES: [u8; 3] = [1, 8, 0x80];

#[test]
fn sessions_that_are_cut_or_changed_do_no_harm() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/nbd");
    let mut sessions = 0;
    for session in std::fs::read_dir(dir).expect("it is in the repository") {
        let session = std::fs::read(session.expect("an entry").path()).expect("a file");
        sessions += 1;
        entry::run(&session);
        for at in 0..session.len().min(300) {
            entry::run(&session[..at]);
            for change in CHANGES {
                let mut changed = session.clone();
                changed[at] ^= change;
                entry::run(&changed);
            }
        }
    }
    assert!(sessions > 5, "there are too few");
}
