//! Limits of paths, as in Linux.

/// Symbolic links in a walk (kernel: `MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;
/// Bytes of a component.
pub const NAME_MAX: usize = 255;
/// Bytes of a path, without the NUL of the C constant.
pub const PATH_MAX: usize = 4095;
