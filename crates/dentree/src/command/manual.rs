//! `dentree completions` and `dentree man`, generated from the argument definitions.

use crate::args::{CompletionsArgs, ManArgs, command};
use crate::host::OsStrExt;
use crate::report::{Problem, Stop};
use std::io::{self, Write};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "dentree", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Stop> {
    let directory = &args.directory;
    clap_mangen::generate_to(command(), directory)
        .map_err(|error| Problem::local(directory.as_os_str().as_bytes(), &error).into())
}
