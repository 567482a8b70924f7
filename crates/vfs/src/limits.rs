//! What the kernel allows in a path.

/// The most symbolic links that one walk follows, as in the kernel (`MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;
/// The longest component in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path in bytes, as `PATH_MAX` less its NUL.
pub const PATH_MAX: usize = 4095;
