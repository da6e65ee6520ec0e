//! What a user of a pool does.

/// What a user may ask for. Names are those within its directory.
#[derive(Clone)]
pub(super) enum Op {
    /// Makes an object at once.
    WriteWhole {
        name: String,
        bytes: Vec<u8>,
    },
    /// Makes an object, writes to it and syncs it.
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
