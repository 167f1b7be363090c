//! Sorts `-o` words: those of the FUSE mount, those with a meaning only in fstab, and the volume's.

use std::path::{Path, PathBuf};

use cairn_fuse::MountOptions as FuseOptions;

/// Options of one mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Options of the mount. Root's mount is open to all users, with devices and set-user-id
    /// programs; a user's mount is private.
    pub fuse: FuseOptions,
    /// The further devices of the volume that were named.
    pub devices: Vec<PathBuf>,
    /// Mount through a loop device of the image.
    pub on_loop: bool,
    /// The remaining words, for the volume, separated by commas.
    pub volume: String,
    /// A line for each word that has no effect.
    pub notes: Vec<String>,
}

/// Changes of a live mount's options.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The mount's new options.
    pub fuse: FuseOptions,
    /// Words for the volume, separated by commas.
    pub volume: String,
    /// A line for each word that has no effect.
    pub notes: Vec<String>,
}

impl Changes {
    /// Parses a list against the options in force. Leaves out the kernel's own options, which
    /// mount(8) repeats.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn parse(current: &FuseOptions, list: &str) -> Result<Self, String> {
        const REPEATED: [&str; 7] =
            ["remount", "device", "user_id", "group_id", "max_read", "rootmode", "fd"];
        let repeated = |word: &&str| REPEATED.contains(&word.split('=').next().unwrap_or(word));
        let words: Vec<&str> = split(list).filter(|word| !repeated(word)).collect();
        let MountOptions { fuse, volume, notes, .. } = MountOptions::over(current.clone(), &words)?;
        Ok(Self { fuse, volume, notes })
    }
}

/// Which part an option belongs to.
enum Place {
    /// The mount takes the options that it knows, the volume the rest.
    Either,
    Both,
    /// A further device of the volume.
    Device(PathBuf),
    /// A loop device of the image, or none.
    Loop(bool),
    /// For mount(8), systemd and libfuse: Cairn does nothing.
    External,
    /// No effect, for this reason.
    Ignored(&'static str),
}

/// The words of a list. A word in double quotes, such as a label of SELinux, is not split.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let comma = move |letter: char| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    };
    list.split(comma).filter(|word| !word.is_empty())
}

impl MountOptions {
    /// Parses words (each may hold several, separated by commas); later ones win. The volume's own
    /// are checked when it is opened.
    ///
    /// # Errors
    /// The list has a word that other programs know, but that cannot work here, or words that
    /// contradict each other.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let options = Self::over(FuseOptions::default(), words)?;
        options.fuse.check()?;
        Ok(options)
    }

    fn over(mut fuse: FuseOptions, words: &[&str]) -> Result<Self, String> {
        let (mut volume, mut devices, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let mut on_loop = false;
        for word in words.iter().flat_map(|word| split(word)) {
            match place(word)? {
                Place::External => {}
                Place::Ignored(why) => {
                    notes.push(format!("option `{word}` has no effect: {why}"));
                    fuse.set(word)?;
                }
                Place::Device(path) => devices.push(path),
                Place::Loop(wanted) => on_loop = wanted,
                Place::Either if fuse.set(word)? => {}
                Place::Both => {
                    fuse.set(word)?;
                    volume.push(word);
                }
                Place::Either => volume.push(word),
            }
        }
        Ok(Self { fuse, devices, on_loop, volume: volume.join(","), notes })
    }
}

fn place(word: &str) -> Result<Place, String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    Ok(match name {
        "ro" | "rw" | "noatime" | "relatime" => Place::Both,
        "auto" | "noauto" | "user" | "nouser" | "users" | "nousers" | "owner" | "noowner"
        | "group" | "nogroup" | "nofail" | "_netdev" | "silent" | "loud" | "comment" | "helper"
        | "uhelper" | "symfollow" | "seclabel" => Place::External,
        // These words switch off features that are never on.
        "nolazytime" | "nomand" | "noiversion" | "nostrictatime" | "norelatime" | "diratime" => {
            Place::External
        }
        "strictatime" => Place::Ignored("access times are kept as with relatime"),
        "nodiratime" => Place::Ignored(
            "access times of directories are kept as those of files: noatime switches off both",
        ),
        "lazytime" => Place::Ignored("times are written with other changes"),
        "mand" => Place::Ignored("Linux has no mandatory locks any more"),
        "iversion" => Place::Ignored("changes are counted anyway"),
        "context" | "fscontext" | "defcontext" | "rootcontext" if !has_selinux() => {
            Place::Ignored("SELinux is not running")
        }
        "context" | "fscontext" | "defcontext" | "rootcontext" => {
            return Err(format!(
                "{name}: the mount cannot be given labels of SELinux: leave it out"
            ));
        }
        "nosymfollow" => {
            return Err(
                "nosymfollow: symbolic links would be followed all the same: leave it out".into()
            );
        }
        // Cairn sets the source and the type that the mount table shows.
        "fsname" | "subtype" => Place::External,
        "device" if value.is_empty() => return Err("device needs a path: device=PATH".into()),
        "device" => Place::Device(value.into()),
        name if name.starts_with("x-") || name.starts_with("X-") => Place::External,
        "remount" => {
            return Err(
                "remount concerns a live mount: use cairn remount -o OPTIONS MOUNTPOINT".into()
            );
        }
        "offset" => {
            return Err(format!("offset is an option of loop devices: write IMAGE?offset={value}"));
        }
        "sizelimit" => {
            return Err(format!("{name} is an option of loop devices: leave it out"));
        }
        "loop" if value.is_empty() => Place::Loop(true),
        "loop" => {
            return Err(format!("loop={value}: a free loop device is taken: write loop"));
        }
        "noloop" if value.is_empty() => Place::Loop(false),
        _ => Place::Either,
    })
}

fn has_selinux() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_words() {
        let options = MountOptions::parse(&[
            "ro,commit=30,allow_other",
            "x-systemd.automount,nosuid",
            "cache=1G",
        ]);
        let options = options.unwrap();
        assert!(options.fuse.read_only);
        assert_eq!(
            (options.fuse.allow_other, options.fuse.suid, options.fuse.dev),
            (Some(true), Some(false), None)
        );
        assert_eq!(options.volume, "ro,commit=30,cache=1G");
    }

    #[test]
    fn changes_start_from_what_is_in_force() {
        let current = MountOptions::parse(&["noexec,ro"]).unwrap().fuse;
        let changes =
            Changes::parse(&current, "remount,rw,user_id=0,group_id=0,commit=9,nosuid").unwrap();
        assert_eq!(changes.volume, "rw,commit=9");
        assert!(!changes.fuse.read_only && !changes.fuse.exec && changes.fuse.suid == Some(false));
    }

    #[test]
    fn words_that_do_nothing_here_are_told_and_those_for_others_are_not() {
        let options = MountOptions::parse(&[
            "noauto,user,x-a=b,strictatime,nodiratime",
            "lazytime,data=writeback",
        ])
        .unwrap();
        assert_eq!(options.volume, "data=writeback");
        let told: Vec<&str> =
            options.notes.iter().map(|note| note.split('`').nth(1).unwrap()).collect();
        assert_eq!(told, ["strictatime", "nodiratime", "lazytime"]);
        assert!(MountOptions::parse(&["nosymfollow"]).unwrap_err().contains("symbolic links"));
        let label = "ro,context=\"system_u:object_r:tmp_t:s0:c1,c2\",rw";
        assert_eq!(
            split(label).collect::<Vec<_>>(),
            ["ro", "context=\"system_u:object_r:tmp_t:s0:c1,c2\"", "rw"]
        );
    }

    #[test]
    fn later_words_win() {
        let options = MountOptions::parse(&["ro,noexec", "rw,exec"]).unwrap();
        assert!(!options.fuse.read_only && options.fuse.exec);
        assert_eq!(options.volume, "ro,rw");
    }

    #[test]
    fn loop_options_and_remount_are_refused_with_a_remedy() {
        assert!(MountOptions::parse(&["offset=512"]).unwrap_err().contains("IMAGE?offset=512"));
        assert!(MountOptions::parse(&["remount,ro"]).unwrap_err().contains("cairn remount"));
    }
}
