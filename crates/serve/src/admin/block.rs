//! `/block`: the block devices of the program, made and changed in service; requests and answers as JSON.

use serde::{Deserialize, Serialize};

/// The answer to `GET /block`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct List {
    /// The name of the pool that the devices are on.
    pub pool: String,
    /// The devices, by name.
    pub devices: Vec<Device>,
}

/// A block device.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Device {
    /// Its name, which is that of its export.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that its extents take on the pool at most, each copy counted once.
    pub room_bytes: u64,
    /// What its clients get at most. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The name of the host that holds its lease: all others only read. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// What the clients of a device get at most.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Limit {
    /// All terms in words: `gp3, 3000 IOPS, 125 MiB/s`.
    pub terms: String,
    /// The lasting operations a second, if they are limited.
    pub iops: Option<u64>,
    /// The lasting bytes a second, if they are limited.
    pub bytes_per_s: Option<u64>,
}

/// The request of `POST /block`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct New {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its limit, as [`NewLimit::limit`]; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// As [`NewLimit::oversell`].
    #[serde(default)]
    pub oversell: bool,
}

/// The request of `POST /block/NAME/limit`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NewLimit {
    /// The contract that its clients get: a name from `contracts/`, such as `gp3`, a table in TOML,
    /// such as `{ iops = 500, mib_per_s = 60 }`, or the text of a contract file. `null` is no limit.
    pub limit: Option<String>,
    /// Whether devices may be sold more in all than the volumes give.
    #[serde(default)]
    pub oversell: bool,
}

/// The request of `POST /block/NAME/size`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Resize {
    /// Its new size in bytes.
    pub size_bytes: u64,
    /// Whether it may become smaller: the bytes behind the new end are gone for good.
    #[serde(default)]
    pub shrink: bool,
}
