//! Methods that a layer passes on.

/// Writes methods that only call the same method of something inside: `forward! { self => self.inner; fn len() -> u64; }`.
///
/// Each is named, so that `clippy::missing_trait_methods` still reports one that a layer forgets.
#[macro_export]
macro_rules! forward {
    ($self:ident => $inner:expr; $(fn $method:ident($($arg:ident: $type:ty),*) -> $out:ty;)+) => {
        $(fn $method(&$self, $($arg: $type),*) -> $out {
            $inner.$method($($arg),*)
        })+
    };
}
