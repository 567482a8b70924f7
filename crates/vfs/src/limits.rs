//! Linux's limits of paths.

/// Maximum number of symbolic links followed in one walk (kernel: `MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;
/// Maximum length of a component in bytes.
pub const NAME_MAX: usize = 255;
/// Maximum length of a path in bytes: the C constant less its NUL.
pub const PATH_MAX: usize = 4095;
