//! Arguments of `dentree stat`, under the names of stat(1).

use super::ListedArgs;
use clap::{Args, ValueHint};
use std::ffi::OsString;

const SEQUENCES: &str = "\
Sequences of a FORMAT, as stat(1) has them, with flags, width and precision as of printf(3):
  %n name  %N quoted name, and where a link leads  %F type  %A and %a mode, as letters and octal
  %f mode in hex  %h links  %i inode  %u %U owner, by number and name  %g %G group  %s size
  %b blocks of %B bytes  %o preferred size of a read  %C security context  %m mount point
  %t %T device's major and minor number in hex (%Hr %Lr decimal)  %r %R both together
  %w %x %y %z times of birth, access, change of content and change of the inode
  %W %X %Y %Z the same in seconds since 1970
With -f:
  %n name  %i ID  %l longest name  %t %T type  %s %S block size  %b %f %a blocks: all, free, free
  for users  %c %d inodes: all, free";

#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = SEQUENCES)]
pub(crate) struct StatArgs {
    /// What to describe; a symbolic link at the end is not followed
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[command(flatten)]
    pub(crate) listed: ListedArgs,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Describe the file system
    #[arg(short, long)]
    pub(crate) file_system: bool,
    /// Print by a format of stat(1), with a newline; --help has its sequences
    #[arg(short = 'c', long, value_name = "FORMAT", overrides_with_all = ["printf", "terse"])]
    pub(crate) format: Option<OsString>,
    /// The same with backslash escapes, and without a newline
    #[arg(long, value_name = "FORMAT", overrides_with_all = ["format", "terse"])]
    pub(crate) printf: Option<OsString>,
    /// Print all on one line, as stat(1) does
    #[arg(short, long, overrides_with_all = ["format", "printf"])]
    pub(crate) terse: bool,
    /// Accepted, as nothing else changes an image that is read
    #[arg(long, value_name = "MODE", value_parser = ["always", "never", "default"])]
    cached: Option<String>,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}
