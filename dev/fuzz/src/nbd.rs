//! Bytes of any kind as an NBD client's input; see `crates/serve/tests/nbd`.

#![no_main]

#[path = "../../../crates/serve/tests/nbd/entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
