pub(crate) mod allocate;
pub(crate) mod clock;
pub(crate) mod epoch;
pub(crate) mod evict;
pub(crate) mod heap;
pub(crate) mod pool;
