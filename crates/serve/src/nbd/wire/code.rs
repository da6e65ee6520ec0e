//! The numbers that name things: options, replies, commands, errors.

/// An enumeration of the numbers that have a name, with one variant for all others.
macro_rules! codes {
    ($(#[$of:meta])* $name:ident: $number:ty { $($(#[$about:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum $name {
            $($(#[$about])* $variant,)*
            /// A number without a name here.
            Other($number),
        }

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                $(if number == $value {
                    return Self::$variant;
                })*
                Self::Other(number)
            }
        }

        impl From<$name> for $number {
            fn from(name: $name) -> Self {
                match name {
                    $($name::$variant => $value,)*
                    $name::Other(number) => number,
                }
            }
        }
    };
}

codes! {
    /// What a client asks for during negotiation.
    OptionCode: u32 {
        /// Ends the negotiation with an export, or the connection.
        ExportName = 1,
        /// Ends the connection.
        Abort = 2,
        /// Lists the exports.
        List = 3,
        /// Continues with TLS.
        StartTls = 5,
        /// Describes an export.
        Info = 6,
        /// Describes an export and ends the negotiation with it.
        Go = 7,
        /// Replies may be structured from now on.
        StructuredReply = 8,
        /// Lists the contexts of an export.
        ListMetaContext = 9,
        /// Selects contexts for block status.
        SetMetaContext = 10,
        /// Requests and replies have lengths of 64 bits.
        ExtendedHeaders = 11,
        /// Ends earlier connections of the client's device, whose id of 16 bytes is the data. Plimsoll's own, the
        /// letters `PLIM`: clients fall back where a server does not know it.
        TakeOver = TAKE_OVER,
        /// Takes the lease of a device: a `LeaseRequest`. Plimsoll's own, the letters `PLIL`.
        TakeLease = TAKE_LEASE,
    }
}

/// The number of Plimsoll's own option, and of the reply to it.
const TAKE_OVER: u32 = 0x504c_494d;
/// The number of the option that takes a lease, and of the replies to it.
const TAKE_LEASE: u32 = 0x504c_494c;
/// Replies from here on are errors.
const ERROR: u32 = 1 << 31;

codes! {
    /// What a server answers to an option.
    OptionReply: u32 {
        /// Done; there is no further reply to the option.
        Ack = 1,
        /// The name of an export.
        Server = 2,
        /// A piece of information about an export.
        Info = 3,
        /// A context.
        MetaContext = 4,
        /// To `TakeOver`: the cache epoch of the server, 16 bytes. Equal ones mean that no acknowledged change was lost.
        CacheEpoch = TAKE_OVER,
        /// To `TakeLease`: the token of the take, 8 bytes.
        Token = TAKE_LEASE,
        /// The server does not know the option.
        Unsupported = ERROR + 1,
        /// The server is set up not to allow it.
        Policy = ERROR + 2,
        /// The option makes no sense.
        Invalid = ERROR + 3,
        /// The server's platform cannot do it.
        Platform = ERROR + 4,
        /// The server wants TLS first.
        TlsRequired = ERROR + 5,
        /// There is no such export.
        Unknown = ERROR + 6,
        /// The server is stopping.
        Shutdown = ERROR + 7,
        /// The client must ask for block sizes.
        BlockSizeRequired = ERROR + 8,
        /// The option is too long.
        TooBig = ERROR + 9,
        /// Extended headers are already agreed on, or needed.
        ExtendedHeadersRequired = ERROR + 10,
        /// To `TakeLease`: another one holds the device, or holds it since; the text says who.
        Held = ERROR + TAKE_LEASE,
    }
}

impl OptionReply {
    /// Whether it says that the option failed.
    #[must_use]
    pub fn is_error(self) -> bool {
        u32::from(self) >= ERROR
    }
}

codes! {
    /// A piece of information about an export.
    InfoKind: u16 {
        /// Size and flags.
        Export = 0,
        /// Its own name.
        Name = 1,
        /// A description for people.
        Description = 2,
        /// Block sizes.
        BlockSize = 3,
    }
}

codes! {
    /// What a request asks for.
    Command: u16 {
        /// Bytes.
        Read = 0,
        /// Writes the bytes that follow it.
        Write = 1,
        /// Ends the connection; there is no reply.
        Disconnect = 2,
        /// Makes acknowledged changes durable.
        Flush = 3,
        /// Gives room back.
        Trim = 4,
        /// Says what will be read soon.
        Cache = 5,
        /// Makes bytes zeros.
        WriteZeroes = 6,
        /// Tells holes from data.
        BlockStatus = 7,
    }
}

codes! {
    /// Why a request failed.
    Errno: u32 {
        /// It is not permitted.
        Perm = 1,
        /// The device failed.
        Io = 5,
        /// The server lacks memory.
        NoMemory = 12,
        /// The request makes no sense.
        Invalid = 22,
        /// There is no room, or a write ends behind the device.
        NoSpace = 28,
        /// The reply would be too long.
        Overflow = 75,
        /// The device cannot do it.
        NotSupported = 95,
        /// The server or the device is closing.
        Shutdown = 108,
    }
}

codes! {
    /// What a chunk of a reply holds.
    ChunkKind: u16 {
        /// Nothing.
        None = 0,
        /// Bytes that were read.
        OffsetData = 1,
        /// A range that was read and is all zeros.
        OffsetHole = 2,
        /// Extents with lengths of 32 bits.
        BlockStatus = 5,
        /// Extents with lengths of 64 bits.
        BlockStatusExt = 6,
        /// An error of the whole request.
        Error = (1 << 15) + 1,
        /// An error at an offset.
        ErrorOffset = (1 << 15) + 2,
    }
}
