//! The command line: its options and arguments, and the help, completions and man pages made of
//! them.

mod backup;
mod blocks;
mod change;
mod check;
pub(crate) mod cp;
pub(crate) mod du;
mod examples;
mod journal;
pub(crate) mod ls;
mod mkfs;
mod resize;
mod salvage;
mod scope;
mod shell;
mod source;
mod stat;
#[cfg(feature = "formats")]
mod table;
mod tar;
mod tune;
mod undelete;
mod xattr;

use crate::command::find::words::take_own;
pub(crate) use blocks::{BlocksArgs, FragArgs, FreeArgs, WhichArgs};
pub(crate) use change::{
    Ask, ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MvArgs, NewSize, RmArgs, TouchArgs, TruncateArgs, WhichTime,
};
pub(crate) use check::CheckArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
pub(crate) use cp::CpArgs;
use dentree_ext4::DxReadAhead;
pub(crate) use du::DuArgs;
pub(crate) use journal::{JournalArgs, JournalCommand, JournalShow};
pub(crate) use ls::LsArgs;
pub(crate) use mkfs::{MkfsArgs, UuidArg};
pub(crate) use resize::ResizeArgs;
pub(crate) use salvage::SalvageArgs;
pub(crate) use shell::{Line, LineCommand, ShellArgs, is_outside, takes_image};
pub(crate) use source::SourceArgs;
#[cfg(feature = "object-stores")]
pub(crate) use source::{CacheArgs, CacheCommand};
pub(crate) use stat::StatArgs;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
#[cfg(feature = "formats")]
pub(crate) use table::{TableArgs, TableFormat};
pub(crate) use tar::{TarArgs, TarCommand, TarCreate, TarExtract, TarList};
pub(crate) use tune::TuneArgs;
pub(crate) use undelete::UndeleteArgs;
pub(crate) use xattr::{DedupArgs, XattrArgs, XattrCommand, XattrGet, XattrSet};

const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  something was not found, differed, or could not be kept
  2  wrong usage
  3  the image is damaged
  4  the image uses a feature that is not supported";

const LOCATIONS: &str = "\
IMAGE:PATH names a thing inside an image, as scp and docker cp do: disk.img:/etc/passwd.
The image ends at the first ':/' before which a file of that name exists, or else at the first such ':';
a path without a leading slash starts at the root of the image too, and a missing ':PATH' means the root.
IMAGE may be an address (https://, http://, s3://, gs://, az://); it ends at the last ':/'.
Give the path in full (a:b.img:/x) where the image's own name holds a colon.";

/// Look into ext2, ext3 and ext4 images and change them: without root, without mounting them.
#[derive(Debug, Parser)]
#[command(name = "dentree", version, after_help = EXIT_CODES, after_long_help = concat_help())]
#[command(max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The whole definition, with examples, as help and man pages show it.
pub(crate) fn command() -> clap::Command {
    scope::hide_useless(examples::document(Cli::command(), EXIT_CODES))
}

/// What the arguments ask for. Ends the program where they are wrong or ask for help.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Cli {
    let words = normalise(args);
    // The examples are a third of the definition, and of the time of a short command.
    let asks_for_help = words.iter().any(|word| word == "-h" || word == "--help" || word == "help");
    let definition = if asks_for_help { command() } else { Cli::command() };
    let matches = definition.get_matches_from(words);
    scope::refuse_useless(&matches).unwrap_or_else(|error| error.exit());
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn concat_help() -> String {
    format!("{LOCATIONS}\n\n{EXIT_CODES}")
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Global {
    /// Use partition N of a partitioned disk, counted from 1 (a single ext4 partition is found
    /// without)
    #[arg(long, global = true, display_order = 100, value_name = "N", conflicts_with = "offset")]
    pub(crate) partition: Option<u32>,
    /// The file system begins at this byte of the image
    #[arg(long, global = true, display_order = 101, value_name = "BYTES")]
    pub(crate) offset: Option<u64>,
    /// What the first lookup in a large directory reads ahead: nothing, the whole index, or a
    /// window that grows while it is useful (the default)
    #[arg(long, global = true, display_order = 103, value_name = "WHAT", value_parser = dx_read_ahead())]
    pub(crate) dx_read_ahead: Option<DxReadAhead>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print at the end, on standard error, what the caches and the device did
    #[arg(long, global = true, display_order = 102)]
    pub(crate) stats: bool,
    /// Show no progress on the terminal
    #[arg(long, global = true, display_order = 104)]
    pub(crate) no_progress: bool,
}

fn dx_read_ahead() -> impl TypedValueParser<Value = DxReadAhead> {
    PossibleValuesParser::new(DxReadAhead::NAMES).try_map(|name| name.parse::<DxReadAhead>())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Describe an image: label, features, sizes, state
    Info(InfoArgs),
    /// List directories
    Ls(LsArgs),
    /// Draw a directory and its contents as a tree
    Tree(TreeArgs),
    /// Print all attributes of an inode
    Stat(StatArgs),
    /// Search for files, by expressions of find(1)
    ///
    /// The expression is that of find(1) of GNU: its words have one dash, come after the places to
    /// search, and mean what they mean there. What is found, and the exit status, are the same; the
    /// order is not, as several directories are searched at a time.
    Find(FindArgs),
    /// Write the content of files to standard output
    Cat(CatArgs),
    /// Copy files and directories out of an image, into one, or between images
    ///
    /// A side that is IMAGE:PATH is in an image; its colon cannot be left out. Directories are
    /// copied with their contents; sparse files stay sparse, symbolic links in directories stay
    /// links. A SOURCE that is a link is followed, unless -a, -d, -P or -r keep it. A new file gets
    /// its name when it is complete. An existing file is written to, as by cp(1), and so is a pipe
    /// or a device that is TARGET. Below TARGET no link is followed and only regular files are
    /// written to, whatever names and links the image has. Files copied into an image belong to
    /// root, unless -a or -p keep their owner.
    ///
    /// With --files-from each path of FILE is copied from below the one SOURCE to the same path
    /// below TARGET, a directory, once. Directories above it are made like those of SOURCE. A path
    /// that is a directory is made without its contents, as by rsync(1). A path with .. is refused.
    Cp(CpArgs),
    /// Write archives of an image's files, extract archives into an image, and list them
    ///
    /// The format is pax, as GNU tar and bsdtar write it: long names, sizes, times in nanoseconds,
    /// hard links, holes, devices, extended attributes and ACLs. Owners are numbers. On extraction
    /// an existing file is replaced, a directory stays, and nothing leads outside of the directory
    /// to extract into.
    Tar(TarArgs),
    /// Make directories in an image
    Mkdir(MkdirArgs),
    /// Remove files and directories from an image
    Rm(RmArgs),
    /// Rename and move within an image
    Mv(MvArgs),
    /// Give a file another name, or make symbolic links
    ///
    /// Without -s TARGET is IMAGE:PATH too, and gets one more name in the same image. With -s
    /// TARGET is the text of the link, a path in the image: /bin/busybox or ../lib.
    Ln(LnArgs),
    /// Change permissions
    ///
    /// MODE is octal (0755), or a comma-separated list of `[ugoa…][+-=][rwxXst…|u|g|o]`, as
    /// chmod(1) has it: u+rwX,go-w. Symbolic links are followed, but not those that -R finds.
    Chmod(ChmodArgs),
    /// Change owner and group
    ///
    /// Both are numbers, or names of the image's own /etc/passwd and /etc/group. Symbolic links are
    /// followed; with -h, and where -R finds them, their own owner changes. A file loses its
    /// set-user-ID and set-group-ID bits, as always.
    Chown(ChownArgs),
    /// Set times, and make empty files
    Touch(TouchArgs),
    /// Shorten files, or extend them by holes
    Truncate(TruncateArgs),
    /// Print, set and remove extended attributes
    Xattr(XattrArgs),
    /// Let files with the same extended attributes share their blocks
    Dedup(DedupArgs),
    /// Sum up disk usage of directories
    Du(DuArgs),
    /// Print where the blocks of files lie, as filefrag -v
    ///
    /// Offsets and lengths are in blocks of the file system, physical ones from its beginning.
    Blocks(BlocksArgs),
    /// Print what a block belongs to, or the names of an inode
    ///
    /// A line per block: free, metadata of fixed place, or the inodes that have it, with what it is
    /// of them and their names. A line per name of an inode.
    Which(WhichArgs),
    /// Print the runs of unallocated blocks, or what they hold
    ///
    /// Fields: the first block, the last one, and how many. With --dump their bytes go to standard
    /// output, as by blkls(1): what was removed may still be there.
    Free(FreeArgs),
    /// Summarise how fragmented free space and files are, as e2freefrag(8)
    Frag(FragArgs),
    /// Show what the journal holds: transactions, blocks, older versions of an inode
    Journal(JournalArgs),
    /// List deleted files, and bring them back to another place
    ///
    /// Deleted files are found in the journal, which holds older copies of inodes and directories,
    /// and in freed inodes that kept their block map, as older kernels left them. The journal is a
    /// ring: what was removed long before the last changes is gone. A line per file: whether its
    /// blocks are free or how many are reused, its inode, its size, when it was removed, its path.
    /// Free blocks may have held another file meanwhile: look at what comes back. Nothing is
    /// written to the image.
    Undelete(UndeleteArgs),
    /// Copy everything that can be read out of a badly damaged image
    ///
    /// Superblock and descriptors are taken from backups where the first ones are gone; inode
    /// tables are found by what is in them, and directories by their entries. The journal is
    /// replayed in memory. Nothing is written to the image. What has no name goes to lost+found
    /// below DIRECTORY as `#N`, with its inode number. Parts of a file that are gone become holes.
    /// Modes, owners (as root), times, extended attributes, links and holes are kept, as by cp -a.
    ///
    /// What is partial and what is lost is listed: the ranges of bytes that are missing, and names
    /// whose inode is gone. A file is whole if all blocks of its map could be read: the file system
    /// has no checksums of content. Copy a failing disk with ddrescue(1) first, and give its map
    /// file.
    #[command(after_help = salvage::EXIT_CODES)]
    Salvage(SalvageArgs),
    /// Check a file system for damage, as e2fsck -fn, without writing
    ///
    /// A journal that needs recovery is replayed in memory. Then everything is read once, on all
    /// processors: inodes and their blocks, directories and their indexes, links, bitmaps and
    /// counts. A line per problem says where it is and what differs. Nothing is repaired: e2fsck
    /// does that, best on a copy of the image.
    #[command(after_long_help = check::EXIT_CODES)]
    Check(CheckArgs),
    /// Print one line per file, to compare two trees with diff
    #[command(long_about = crate::command::checksum::format::FORMAT)]
    Checksum(ChecksumArgs),
    /// Show what was added, removed, moved and changed between two trees
    ///
    /// Prints a line per difference, sorted by path, its fields divided by tabs: A and a path that
    /// NEW alone has, D and a path that OLD alone has, M and a path that both have with what
    /// differs (type, mode, owner, content, target, device, xattrs), R with the old and the new
    /// path of what was moved. Times alone are no difference. In two states of one file system (its
    /// UUID is the same) an inode with the same number, generation and change time has not changed,
    /// so that metadata alone is read where nothing happened; there moves are found. Contents are
    /// compared where the rest leaves them open.
    ///
    /// The exit status is that of diff(1): 0 without differences, 1 with some, more for trouble.
    Diff(DiffArgs),
    /// Make an image with an ext4 file system, empty or filled from a directory
    ///
    /// The file system is what mke2fs makes of the same options, empty or with a copy of a
    /// directory. The image is sparse, and gets its name when it is complete.
    Mkfs(MkfsArgs),
    /// Print or set the label of a file system, as e2label(8)
    Label(LabelArgs),
    /// Print or set the UUID of a file system
    ///
    /// A new one is refused where checksums cover it: with metadata_csum or uninit_bg, and without
    /// metadata_csum_seed.
    Uuid(UuidArgs),
    /// Change parameters of a file system, as tune2fs(8)
    ///
    /// Only the superblock and its backups change; they are checked first. A journal that needs
    /// recovery is refused.
    Tune(TuneArgs),
    /// Make a file system that is not mounted larger or smaller, as resize2fs(8)
    ///
    /// An image that is one file system becomes longer or shorter with it; a partition must be made
    /// larger before, or may be made smaller afterwards. Before it becomes smaller the file system
    /// is checked; inodes may get other numbers. After a crash it has its old size or its new one,
    /// and all files; without a journal e2fsck has to check it then.
    Resize(ResizeArgs),
    /// Mount an image, until Ctrl-C or umount
    ///
    /// While memory is short (pressure stall information of the cgroup or of the machine), cached
    /// names and inodes shrink to three quarters each time; --stats counts it.
    /// $MEMORY_PRESSURE_WATCH names another pressure file or a FIFO, /dev/null none.
    #[cfg(target_os = "linux")]
    Mount(MountArgs),
    /// Unmount an image, and wait until it is closed
    ///
    /// umount(8) and fusermount3 return when the mount is gone, while the server still writes to
    /// the image. When this command returns, the image can be copied, mounted and changed.
    #[cfg(target_os = "linux")]
    Umount(UmountArgs),
    /// Serve the files of an image to browsers, until Ctrl-C
    ///
    /// Every client that can connect may read the whole image, whatever its permissions say; so
    /// only this machine can connect, unless --listen says otherwise. With --password-file a
    /// client needs a password, which can be read on its way unless --tls-cert and --tls-key are
    /// given, too. The figures of --metrics have neither passwords nor TLS. The three files are
    /// read once. Each request is logged on standard output in the common log format.
    ///
    /// While memory is short, the caches shrink as those of `dentree mount` do.
    Serve(ServeArgs),
    /// Run commands on one open image, typed or from a script
    ///
    /// Each line is a command of dentree. Paths are those of the image: they need no IMAGE: before
    /// them, and are relative to a current directory, which cd changes. disk.img:/x still names
    /// another image. Changes are committed when their command ends.
    ///
    /// The shell adds cd, pwd, lcd, lpwd, get, put and quit; help lists all. !COMMAND runs a
    /// command of this machine. Blanks separate words, quotes and backslashes protect them, and #
    /// begins a comment. A script ends at the first line that fails, with its status; a line that
    /// begins with - may fail.
    Shell(ShellArgs),
    /// Show and empty the cache on disk of images that are not local
    #[cfg(feature = "object-stores")]
    Cache(CacheArgs),
    /// Show dentree at work, on an image of its own
    Demo,
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The new label, at most 16 bytes
    pub(crate) new: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct UuidArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The new UUID, or random, or clear for zeros
    #[arg(value_parser = mkfs::parse_uuid)]
    pub(crate) new: Option<UuidArg>,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// The directory to draw
    #[arg(value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) location: OsString,
    /// Include names that begin with a dot
    #[arg(short)]
    pub(crate) all: bool,
    /// Print directories only
    #[arg(short)]
    pub(crate) directories: bool,
    /// Descend at most N levels
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) level: Option<u32>,
}

/// Paths from a file, with the options of tar(1).
#[derive(Debug, Args)]
pub(crate) struct ListedArgs {
    /// Read paths from FILE, one per line, relative to the one argument; `-` is standard input
    #[arg(short = 'T', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,
    /// Paths in FILE end with a NUL byte instead of a newline
    #[arg(long, requires = "files_from")]
    pub(crate) null: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "dentree find [OPTIONS] [-H] [-L] [-P] IMAGE:PATH... [EXPRESSION]")]
#[command(after_long_help = crate::command::find::help::EXPRESSION)]
pub(crate) struct FindArgs {
    /// Where to search, and an expression of find(1); --help has its words
    #[arg(required = true, value_name = "IMAGE:PATH EXPRESSION", value_hint = ValueHint::FilePath)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
    /// Print a JSON object per line instead of a path
    #[arg(long)]
    pub(crate) json: bool,
    /// Print lines of a bodyfile instead of paths, for mactime(1); with --format a row a time stamp
    #[arg(long, conflicts_with = "json")]
    pub(crate) timeline: bool,
    /// Go in the byte order of the paths instead of as found
    #[arg(long)]
    pub(crate) sort: bool,
    #[cfg(feature = "formats")]
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The files; `-` is standard input
    #[arg(required = true, value_name = "IMAGE:PATH", value_hint = ValueHint::FilePath)]
    pub(crate) locations: Vec<OsString>,
    #[command(flatten)]
    pub(crate) listed: ListedArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChecksumArgs {
    /// Trees in images, or local directories; the lines of several begin with the tree
    #[arg(required = true, value_name = "IMAGE:PATH|DIRECTORY", value_hint = ValueHint::AnyPath)]
    pub(crate) trees: Vec<OsString>,
    #[command(flatten)]
    pub(crate) listed: ListedArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A tree in an image, or a local directory
    #[arg(value_name = "OLD", value_hint = ValueHint::AnyPath)]
    pub(crate) old: OsString,
    /// Another
    #[arg(value_name = "NEW", value_hint = ValueHint::AnyPath)]
    pub(crate) new: OsString,
    /// Read no contents: files of the same size and modification time have the same content
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print a JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The mount point: an empty directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Options of mount(8) and fuse2fs(1): ro (write nothing), offset=, partition=,
    /// overlay=FILE (see --overlay), dx_read_ahead=off|whole|window, allow_other, allow_root, uid=,
    /// gid=, fakeroot (all files belong to you), suid, dev, noexec, nonempty, fsname=, subtype=,
    /// io_uring, no_io_uring (how the kernel sends requests; over io_uring where it can)
    #[arg(short, value_name = "OPTION,…")]
    pub(crate) options: Vec<OsString>,
    /// Return when the mount is ready, and serve it in the background
    #[arg(long)]
    pub(crate) background: bool,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// The mount point
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    #[arg(help = "Where to listen; port 0 takes a free one, 0.0.0.0 or [::] admits other machines")]
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// Serve figures of server, caches and device under /metrics on this address (Prometheus text
    /// format)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Append the access log to FILE instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) access_log: Option<PathBuf>,
    /// Admit only the users in FILE: lines of NAME:HASH, as htpasswd -B writes them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,
    /// Serve over TLS (https) with the certificates in FILE (PEM), the server's own first
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory, which must exist
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Options of every command that take a value.
const OWN_WITH_VALUE: [&str; 7] =
    ["--partition", "--offset", "--dx-read-ahead", "--endpoint", "--cache-dir", "--cache-size", "--overlay"];

/// Puts our own options of find before its words, which have one dash and an order that means
/// something, and parts the letters of tar.
fn normalise(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let mut at = 1;
    while let Some(word) = args.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with("--")) {
        at += if OWN_WITH_VALUE.contains(&word) { 2 } else { 1 };
    }
    if args.get(at).is_some_and(|word| word == "find") {
        let (own, words) = take_own(args.split_off(at + 1));
        args.extend(own);
        if !words.is_empty() {
            args.push("--".into());
        }
        args.extend(words);
    } else if args.get(at).is_some_and(|word| word == "tar")
        && let Some(words) = args.get(at + 1).and_then(|word| tar::letters(word.to_str()?))
    {
        args.splice(at + 1..at + 2, words.into_iter().map(OsString::from));
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(line: &str) -> String {
        let words = normalise(line.split(' ').map(OsString::from));
        words.iter().map(|w| w.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn long_help_says_more_than_the_list_of_commands() {
        let mut dentree = Cli::command();
        for name in
            ["find", "cp", "checksum", "diff", "mkfs", "mount", "umount", "serve", "ln", "chmod", "chown"]
        {
            let command = dentree.find_subcommand_mut(name).unwrap();
            let [short, long] =
                [command.render_help(), command.render_long_help()].map(|help| help.to_string());
            let about = long.split("Usage:").next().unwrap();
            assert!(about.lines().count() > 2 && !short.contains(about), "{name}: {about}");
        }
    }

    #[test]
    fn every_option_with_a_value_is_known_before_a_command() {
        let dentree = Cli::command();
        let options = dentree.get_arguments().filter(|option| option.get_action().takes_values());
        let mut named: Vec<String> =
            options.filter_map(|option| option.get_long().map(|long| format!("--{long}"))).collect();
        let mut known = OWN_WITH_VALUE;
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn letters_of_tar_may_stand_together() {
        assert_eq!(normalised("dentree tar cvf a.tar a:/"), "dentree tar c -v -f a.tar a:/");
        assert_eq!(normalised("dentree --stats tar -xzf a.tar a:/"), "dentree --stats tar x -f a.tar a:/");
        assert_eq!(normalised("dentree tar t -v"), "dentree tar t -v");
        for line in ["dentree tar czf a.tar.gz a:/", "dentree tar --help", "dentree tar ctf a", "dentree tar"]
        {
            assert_eq!(normalised(line), line);
        }
    }

    #[test]
    fn words_of_find_come_after_our_own_options() {
        assert_eq!(
            normalised("dentree --offset 1 find a:/ -name *.c --json"),
            "dentree --offset 1 find --json -- a:/ -name *.c"
        );
        assert_eq!(normalised("dentree find --help"), "dentree find --help");
        assert_eq!(normalised("dentree ls find -name --json"), "dentree ls find -name --json");
    }
}
