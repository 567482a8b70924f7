//! The format of a line.

/// The long help of the command documents the format.
pub(crate) const FORMAT: &str = "\
Print one line per file, to compare two trees with diff

Lines are sorted by the bytes of the path. Each has eleven fields, divided by tabs, with - where there is nothing to say:

  path     relative to the tree, which is . itself, or behind the tree where several are given; control bytes and bytes that are not UTF-8 as \\x1b (\\n, \\t, \\r), a \
backslash doubled
  type     f d l b c p s, as find -type has them
  mode     permission, setuid, setgid and sticky bits, octal
  uid      owner
  gid      group
  size     in bytes; - for directories, where it depends on the history
  mtime    seconds since 1970 with nanoseconds
  nlink    number of names; - for directories, where file systems count differently
  target   of a symbolic link, escaped like the path; major:minor of a device
  xattrs   BLAKE3 of all extended attributes sorted by name: each as length of name, name, length of value, value, \
lengths as 8 bytes, little-endian
  content  BLAKE3 of a regular file's blocks of 4096 bytes that are not all zeros, each behind its offset as 8 bytes, \
little-endian; the last may be shorter. So holes cost nothing, and how a file is allocated does not matter.

With --files-from there is a line for each path of FILE, in its order; nothing below a directory is \
printed unless it is listed too.

A field that could not be read is ! and the reason is on standard error. A local directory is best read as root, who \
alone sees trusted and security attributes. Directories of other file systems that are mounted below are included.";
