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
}

/// The request of `POST /block`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct New {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
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
