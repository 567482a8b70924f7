//! A directory entry cache that is looked up without locks.
