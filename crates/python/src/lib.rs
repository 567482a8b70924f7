//! Python's face of Dentree, the extension module `dentree._dentree`.
//!
//! Every call leaves the GIL to other threads while it works on an image. Python files beside it
//! make paths, files and fsspec of its few classes.

mod errors;
mod file;
mod find;
mod image;
mod source;
mod stat;
mod table;
mod tree;
mod walk;

use pyo3::prelude::*;

#[pymodule]
fn _dentree(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<image::Image>()?;
    module.add_class::<image::Below>()?;
    module.add_class::<image::Found>()?;
    module.add_class::<file::File>()?;
    module.add_class::<table::Table>()
}
