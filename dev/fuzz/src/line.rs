//! Bytes of any kind as line protocol; see `crates/serve/tests/http`.

#![no_main]

#[path = "../../../crates/serve/tests/http/entry_line.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
