//! Padding against false sharing.

/// A value alone on its cache lines: two, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);
