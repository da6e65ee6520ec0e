//! Builds the C++ half of the crate against the headers the RocksDB sys crate ships.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 6] =
    ["file_system.cc", "files.cc", "info_log.cc", "install.cc", "outcome.cc", "table_range.cc"];

/// The macros of RocksDB's own build that its public headers use: both halves must see the same classes.
const DEFINES: [&str; 5] =
    ["NDEBUG", "HAVE_ALIGNED_NEW", "OS_LINUX", "ROCKSDB_PLATFORM_POSIX", "ROCKSDB_LIB_IO_POSIX"];

fn main() {
    let sys = env::var_os("DEP_ROCKSDB_CARGO_MANIFEST_DIR")
        .expect("the RocksDB sys crate is a direct dependency and exports its directory");
    let sys = PathBuf::from(sys);
    expect_same_release(&sys);
    let headers = sys.join("rocksdb/include");

    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").flag("-isystem").flag(&headers);
    // RocksDB is built without run-time type information: classes of ours that refer to that of a base
    // class would not link.
    build.flag("-fno-rtti").flag("-Wall").flag("-Wextra").flag("-Wno-unused-parameter");
    if let Some(cpu) = target_cpu() {
        build.flag_if_supported(format!("-march={cpu}"));
    }
    for define in DEFINES {
        build.define(define, None);
    }
    for source in SOURCES {
        build.file(format!("src/shim/{source}"));
    }
    build.compile("plimsoll_shim");

    println!("cargo::rerun-if-changed=src/shim");
}

/// Stops where `dev/rocksdb` built a library of another release than that of the headers. It writes the release beside
/// the library.
fn expect_same_release(sys: &Path) {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    let Some(library) = env::var_os("ROCKSDB_LIB_DIR") else { return };
    let Ok(built) = fs::read_to_string(Path::new(&library).join("crate")) else { return };
    let wanted = sys.file_name().unwrap_or_default().to_string_lossy();
    assert!(
        built == wanted,
        "the RocksDB in {} is that of {built}, the headers are those of {wanted}: run dev/rocksdb",
        library.display()
    );
}

/// The processor that Rust, and RocksDB, are compiled for.
fn target_cpu() -> Option<String> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").ok()?;
    flags.split('\x1f').find_map(|flag| {
        let flag = flag.strip_prefix("-C").unwrap_or(flag);
        flag.strip_prefix("target-cpu=").map(str::to_owned)
    })
}
