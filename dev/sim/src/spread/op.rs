//! The operations of a user of a pool.

/// An operation. Names are those within the user's directory.
#[derive(Clone)]
pub(super) enum Op {
    /// Writes a whole object.
    WriteWhole {
        name: String,
        bytes: Vec<u8>,
    },
    /// Creates an object, writes to it and syncs it.
    Put {
        name: String,
        bytes: Vec<u8>,
    },
    /// Writes to the end of an object, without a sync.
    Append {
        name: String,
        bytes: Vec<u8>,
    },
    Sync {
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    RemoveSoon {
        name: String,
    },
    RenameDirectory {
        from: String,
        to: String,
    },
    Flush,
}
