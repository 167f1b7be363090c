//! Foreign checkers: e2fsck and fsck.f2fs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use cairn_block::BlockDevice;
use cairn_block::file::{FileDevice, OpenOptions};
use cairn_block::zoned::open_image;

/// What fsck.f2fs prints about a damaged volume. Its exit status is not enough: it repairs a wrong
/// hash, reports it, and exits with 0.
const ALARMS: [&str; 5] = ["[ASSERT]", "[FIX]", "[Fail]", "Invalid CP", "Corrupted"];

/// Offsets of the feature bits in both superblocks, and the bit of zoned volumes.
const FEATURES: [u64; 2] = [1024 + 2180, 4096 + 1024 + 2180];
const BLKZONED: u8 = 2;

/// The result of a checker.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Exit status of e2fsck: 0 clean, 1 corrected, 4 errors left, 8 operational error, 16 usage.
    /// fsck.f2fs has the same and 255. It is 4 for a program that reports errors and exits with 0.
    pub status: i32,
    /// The exit status of the program.
    pub exit: i32,
    /// Everything it printed.
    pub output: String,
}

impl Verdict {
    /// True if nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.status == 0
    }

    fn of(output: &Output) -> Self {
        let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let exit = output.status.code().unwrap_or(-1);
        Self { status: exit, exit, output: text.concat() }
    }

    /// What the program has done, and what it has printed.
    #[must_use]
    pub fn words(&self) -> String {
        let printed = self.output.trim_end();
        match self.exit {
            0 if self.status != 0 => format!("exits 0 and reports errors:\n{printed}"),
            exit => format!("exits {exit}:\n{printed}"),
        }
    }
}

/// Finds a program in `PATH` or in the system's administration directories.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// Its standard input is empty: a question is answered with the end of the input.
fn checker(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

fn e2fsck(program: &Path, flags: &str, image: &Path) -> io::Result<Verdict> {
    Ok(Verdict::of(&checker(program).arg(flags).arg(image).output()?))
}

/// `e2fsck -fn`: a full check that writes nothing (and does not replay the journal). The status is
/// 0 only if e2fsck had nothing to ask: with `-n` it exits with 0 after some findings that
/// `e2fsck -p` leaves to a person (a resize inode that is not valid). An offer to optimise an
/// extent tree is not a finding: e2fsck makes it for Linux's trees, too.
///
/// # Errors
/// The program cannot be started.
pub fn e2fsck_check(program: &Path, image: &Path) -> io::Result<Verdict> {
    let verdict = e2fsck(program, "-fn", image)?;
    let is_finding = |line: &str| line.ends_with("? no") && !line.contains("extent tree (at level");
    let asked = verdict.output.lines().any(is_finding);
    Ok(Verdict { status: if asked && verdict.status == 0 { 4 } else { verdict.status }, ..verdict })
}

/// `e2fsck -p`: replays the journal and makes safe repairs; 0 or 1 is what a boot accepts.
///
/// # Errors
/// The program cannot be started.
pub fn e2fsck_preen(program: &Path, image: &Path) -> io::Result<Verdict> {
    e2fsck(program, "-p", image)
}

/// True if nothing is wrong with a volume that `e2fsck -p` has recovered. After the replay of a
/// journal e2fsck 1.47 does not change the orphan file and its feature bit, and then reports them,
/// on Linux's volumes, too. It must report nothing else.
#[must_use]
pub fn is_clean_after_preen(verdict: &Verdict) -> bool {
    let lines: Vec<&str> = verdict.output.lines().collect();
    let mut asked = lines.windows(2).filter(|pair| pair[1].ends_with("? no")).map(|pair| pair[0]);
    let is_orphan_file = |complaint: &str| complaint.to_lowercase().contains("orphan file");
    verdict.is_clean() || verdict.status == 4 && asked.all(is_orphan_file)
}

/// `fsck.f2fs --dry-run`: a full check that writes nothing. The status is 0 only if the text
/// reports no error either. An image with zones is checked as a copy without them, because
/// fsck.f2fs asks the kernel for zones.
///
/// # Errors
/// The program cannot be started, or there is no room for the copy.
pub fn fsck_f2fs(program: &Path, image: &Path) -> io::Result<Verdict> {
    let plain = without_zones(image)?;
    let image = plain.as_ref().map_or(image, |plain| &plain.0);
    // It asks questions about volumes with lost files, and the end of the input is an error.
    let verdict = Verdict::of(&checker(program).arg("--dry-run").arg(image).output()?);
    let alarmed = verdict.status == 0 && f2fs_alarms(&verdict.output).next().is_some();
    Ok(Verdict { status: if alarmed { 4 } else { verdict.status }, ..verdict })
}

/// The lines of fsck.f2fs that report an error.
pub fn f2fs_alarms(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| ALARMS.iter().any(|alarm| line.contains(alarm)))
}

/// True if nothing is wrong with an F2FS volume that was not unmounted. A pack that was being
/// written is no error if the other one is valid. `is_recovered`: fsck.f2fs 1.15 looks for the
/// inode of an fsynced direct node only in the NAT, which does not have a new inode, so it cannot
/// judge every volume before recovery.
#[must_use]
pub fn is_clean_f2fs(verdict: &Verdict, is_recovered: bool) -> bool {
    let torn = |line: &str| line.contains("Invalid CP");
    let found = f2fs_alarms(&verdict.output).any(|line| !torn(line));
    let exit = verdict.output.lines().any(torn) && !found && verdict.status == 4;
    let beyond_it = !is_recovered && verdict.output.contains("record_fsync_data failed") && !found;
    verdict.is_clean() || exit || beyond_it
}

/// A file that is removed at the end.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A copy of an image with zones, without the table of zones and without the feature.
fn without_zones(image: &Path) -> io::Result<Option<Copy>> {
    // The daemon that has unmounted it may not have ended yet.
    let options = OpenOptions { lock: false, ..OpenOptions::read() };
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, options).map_err(io::Error::other)?);
    let Some(zoned) = open_image(&device).map_err(io::Error::other)? else { return Ok(None) };
    let mut name = image.as_os_str().to_owned();
    name.push(".without-zones");
    let plain = Copy(name.into());
    // cp keeps holes.
    let copied =
        checker(Path::new("cp")).arg("--sparse=always").arg(image).arg(&plain.0).status()?;
    if !copied.success() {
        return Err(io::Error::other(format!("cp ends with {copied}: is the disk full?")));
    }
    let file = File::options().read(true).write(true).open(&plain.0)?;
    file.set_len(zoned.geometry().size)?;
    for at in FEATURES {
        let mut features = [0];
        file.read_exact_at(&mut features, at)?;
        file.write_all_at(&[features[0] & !BLKZONED], at)?;
    }
    Ok(Some(plain))
}
