//! Bytes of any kind as a client's input; see `crates/serve/tests/input`.

#![no_main]

#[path = "../../../crates/serve/tests/input/entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
