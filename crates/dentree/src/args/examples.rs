//! The examples of each command, in its help and on its man page. A test parses every one.

use clap::Command;

/// A command, and lines to type with what they do.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: &[Examples] = &[
    ("info", &[("dentree info disk.img", "Which file system is it, and in what state?")]),
    (
        "ls",
        &[
            ("dentree ls -l disk.img:/etc", "As ls -l on a mount."),
            ("dentree ls 'disk.img:/etc/*.conf'", "A pattern of names in the image."),
            ("dentree ls --deleted disk.img:/home/me", "Names that were removed."),
            ("dentree ls https://example.org/disk.img:/etc", "Of an image on a server."),
        ],
    ),
    ("tree", &[("dentree tree disk.img:/home", "All below /home, drawn as a tree.")]),
    (
        "stat",
        &[
            ("dentree stat disk.img:/etc/passwd", "All attributes."),
            ("dentree stat -c '%n %s %y' disk.img:/etc", "Some, in a format of stat(1)."),
            ("dentree stat 'disk.img:<12>'", "Of inode 12."),
        ],
    ),
    (
        "find",
        &[
            ("dentree find disk.img -name '*.conf' -size +4k", "By name and size."),
            ("dentree find a.img b.img -newermt 2026-11-01 -ls", "What is new in two images."),
            ("dentree find disk.img -perm -4000 -user root", "Setuid programs of root."),
        ],
    ),
    (
        "cat",
        &[
            ("dentree cat disk.img:/etc/hostname", "The content of a file."),
            ("dentree cat 'disk.img:/var/log/syslog*'", "Of several, one after another."),
        ],
    ),
    (
        "cp",
        &[
            ("dentree cp disk.img:/etc/hosts .", "Out of an image."),
            ("dentree cp -a disk.img:/home backup", "A tree, with owners, times and attributes."),
            ("dentree cp -a site disk.img:/srv", "Into an image."),
            ("dentree cp -a old.img:/home new.img:/", "From image to image."),
        ],
    ),
    (
        "tar",
        &[
            ("dentree tar c disk.img:/etc", "An archive on standard output."),
            ("dentree tar x disk.img:/srv", "Extracts standard input."),
        ],
    ),
    ("tar t", &[("dentree tar t -f backup.tar", "What is in an archive.")]),
    ("tar c", &[("dentree tar c disk.img:/etc", "An archive of /etc on standard output.")]),
    ("tar x", &[("dentree tar x disk.img:/srv", "Extracts standard input below /srv.")]),
    ("blocks", &[("dentree blocks disk.img:/var/log/syslog", "The extents of a file.")]),
    (
        "which",
        &[
            ("dentree which disk.img --block 70000", "What is at a bad sector?"),
            ("dentree which disk.img --inode 12 --inode 13", "All names of two inodes."),
        ],
    ),
    (
        "free",
        &[
            ("dentree free disk.img", "The runs of free blocks."),
            ("dentree free --dump disk.img", "Their bytes, to search for what was removed."),
        ],
    ),
    ("frag", &[("dentree frag disk.img", "In how many pieces are files and free space?")]),
    (
        "salvage",
        &[
            ("dentree salvage broken.img rescued", "All that can be read, into a new directory."),
            ("dentree salvage --map disk.map disk.img rescued", "Of a disk that ddrescue has copied."),
        ],
    ),
    ("journal", &[("dentree journal ls disk.img", "The transactions in the log, oldest first.")]),
    ("journal ls", &[("dentree journal ls disk.img", "The transactions in the log, oldest first.")]),
    (
        "journal show",
        &[
            ("dentree journal show disk.img --transaction 17", "The blocks that transaction 17 wrote."),
            ("dentree journal show disk.img --inode 12", "What inode 12 was before."),
            ("dentree journal show disk.img --block 70 --dump", "The last copy of a block."),
        ],
    ),
    (
        "undelete",
        &[
            ("dentree undelete disk.img", "Which deleted files are known?"),
            ("dentree undelete disk.img:/home/me/letter -o letter", "One of them, by its path."),
            ("dentree undelete 'disk.img:<1234>' -o letter", "By its inode."),
            ("dentree undelete disk.img --all -o rescued", "All of them, into a directory."),
        ],
    ),
    (
        "check",
        &[
            ("dentree check disk.img", "Is anything damaged?"),
            ("dentree check --json https://example.org/disk.img", "On a server, for a program."),
        ],
    ),
    ("mkdir", &[("dentree mkdir -p disk.img:/srv/www", "With the directories above it.")]),
    ("rm", &[("dentree rm -r disk.img:/var/cache", "A directory and all below it.")]),
    (
        "mv",
        &[
            ("dentree mv disk.img:/a disk.img:/b", "Another name."),
            ("dentree mv old.img:/data new.img:/", "Into another image."),
        ],
    ),
    (
        "ln",
        &[
            ("dentree ln disk.img:/a disk.img:/b", "A second name."),
            ("dentree ln -s ../etc/hosts disk.img:/link", "A symbolic link."),
        ],
    ),
    ("chmod", &[("dentree chmod -R u=rwX,go= disk.img:/home", "As chmod(1).")]),
    (
        "chown",
        &[
            ("dentree chown -R www:www disk.img:/srv", "Names are those of the image."),
            ("dentree chown 1000:100 disk.img:/home", "By numbers."),
        ],
    ),
    ("touch", &[("dentree touch disk.img:/etc/machine-id", "Makes an empty file, or sets its times.")]),
    ("truncate", &[("dentree truncate -s 0 disk.img:/var/log/syslog", "Empties a file.")]),
    (
        "xattr",
        &[
            ("dentree xattr ls disk.img:/srv", "The names of attributes."),
            ("dentree xattr set disk.img:/srv user.note text", "Sets one."),
        ],
    ),
    ("xattr ls", &[("dentree xattr ls disk.img:/srv", "The names of attributes.")]),
    ("xattr get", &[("dentree xattr get disk.img:/srv user.note", "The value as it is.")]),
    ("xattr set", &[("dentree xattr set disk.img:/srv user.note text", "Sets an attribute.")]),
    ("xattr rm", &[("dentree xattr rm disk.img:/srv user.note", "Removes an attribute.")]),
    ("dedup", &[("dentree dedup disk.img", "Shares equal attribute blocks between inodes.")]),
    ("du", &[("dentree du -h disk.img:/var", "As du -h on a mount.")]),
    ("checksum", &[("dentree checksum disk.img:/etc", "A line for each file, the same for the same tree.")]),
    (
        "diff",
        &[
            ("dentree diff monday.img tuesday.img", "What changed from one to the other."),
            ("dentree diff --json disk.img:/etc /etc", "Of an image and this machine."),
        ],
    ),
    (
        "mkfs",
        &[
            ("dentree mkfs --size 1G disk.img", "An empty file system."),
            ("dentree mkfs --from root.tar.gz root.img", "Filled from an archive, as large as needed."),
        ],
    ),
    ("label", &[("dentree label disk.img data", "Sets it; without a name, prints it.")]),
    ("uuid", &[("dentree uuid disk.img", "Prints it.")]),
    ("tune", &[("dentree tune -c 30 -L data disk.img", "Check after 30 mounts; a new label.")]),
    (
        "resize",
        &[
            ("dentree resize disk.img 8G", "To 8 GiB; the file grows if it must."),
            ("dentree resize disk.img", "To the size of the file or device."),
            ("dentree resize --minimum disk.img", "As small as the files allow; the file is cut."),
        ],
    ),
    (
        "mount",
        &[
            ("dentree mount disk.img /mnt", "Until Ctrl-C or umount."),
            ("dentree mount --background -o ro s3://bucket/disk.img /mnt", "Read-only, of a bucket."),
        ],
    ),
    ("umount", &[("dentree umount /mnt", "Returns when the image is closed.")]),
    ("serve", &[("dentree serve disk.img", "The address to open in a browser is printed.")]),
    (
        "shell",
        &[
            ("dentree shell disk.img", "Commands are typed; `help` lists them."),
            ("dentree shell -w disk.img", "They may change the image."),
        ],
    ),
    ("cache", &[("dentree cache ls", "The images in it.")]),
    ("cache ls", &[("dentree cache ls", "The images in the cache, the one used last first.")]),
    ("cache rm", &[("dentree cache rm --all", "Empties the cache.")]),
    ("demo", &[("dentree demo", "Half a minute at work.")]),
    ("completions", &[("dentree completions bash", "A script for bash to source.")]),
    ("man", &[("dentree man .", "Man pages into this directory.")]),
];

/// Adds examples and the exit status to the help of each command.
pub(super) fn document(dentree: Command, exit_codes: &'static str) -> Command {
    EXAMPLES.iter().fold(dentree, |dentree, (command, examples)| {
        let lines: Vec<String> =
            examples.iter().map(|(line, what)| format!("  {line}\n      {what}")).collect();
        let text = format!("Examples:\n{}", lines.join("\n"));
        match command.split_once(' ') {
            // A build without object stores has no cache.
            _ if dentree.find_subcommand(command.split_whitespace().next().unwrap_or_default()).is_none() => {
                dentree
            }
            None => dentree.mut_subcommand(command, |command| append(command, &text, exit_codes)),
            Some((above, command)) => dentree.mut_subcommand(above, |above| {
                above.mut_subcommand(command, |command| append(command, &text, exit_codes))
            }),
        }
    })
}

/// Appends to the long help. A command may have an exit status of its own.
fn append(command: Command, examples: &str, exit_codes: &str) -> Command {
    let own = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let own = own.unwrap_or_default();
    let exit_codes = if own.contains("Exit status") { "" } else { exit_codes };
    let parts = [&own, examples, exit_codes];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    command.after_long_help(parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::EXAMPLES;

    /// All commands that a user can name.
    fn names(command: &clap::Command, above: &str, names: &mut Vec<String>) {
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = format!("{above}{}", command.get_name());
            self::names(command, &format!("{name} "), names);
            names.push(name);
        }
    }

    #[test]
    fn every_command_has_examples_and_an_exit_status() {
        let mut all = Vec::new();
        names(&command(), "", &mut all);
        for name in all {
            let mut dentree = command();
            dentree.build();
            let found =
                name.split(' ').try_fold(&dentree, |above, name| above.find_subcommand(name)).unwrap();
            let help = found.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  dentree ") && help.contains("Exit status"), "{name}: {help}");
        }
    }

    #[test]
    fn every_example_can_be_typed() {
        for (name, examples) in EXAMPLES {
            for (line, _) in *examples {
                let words = line.split(' ').map(|word| word.trim_matches('\'').into());
                // A format with spaces is several words here, which is no matter.
                let parsed = command().try_get_matches_from(normalise(words));
                assert!(parsed.is_ok() && line.starts_with(&format!("dentree {name}")), "{line}: {parsed:?}");
            }
        }
    }
}
