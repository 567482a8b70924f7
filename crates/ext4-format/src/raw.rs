/// Declares a little-endian structure: fields under kernel names at their offsets. The compiler
/// checks offsets and size.
macro_rules! raw_layout {
    ($(#[$meta:meta])* $name:ident, size $size:literal { $($offset:literal $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
                 zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        #[allow(dead_code, reason = "a layout names every field, also those that no one reads")]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use raw_layout;

pub(crate) fn join(high: impl Into<u32>, low: impl Into<u32>) -> u64 {
    u64::from(high.into()) << 32 | u64::from(low.into())
}

/// High and low half.
pub(crate) fn split(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

/// High and low half.
pub(crate) fn split16(value: u32) -> (u16, u16) {
    ((value >> 16) as u16, value as u16)
}

pub(crate) fn join16(high: impl Into<u16>, low: impl Into<u16>) -> u32 {
    u32::from(high.into()) << 16 | u32::from(low.into())
}

/// `None` after the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}
