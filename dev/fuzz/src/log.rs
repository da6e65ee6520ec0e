//! A file and a hint of any bytes in a log store; see `crates/engine/tests/log`.

#![no_main]

#[path = "../../../crates/engine/tests/log/entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
