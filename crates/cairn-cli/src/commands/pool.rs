//! `cairn snapshot`, `clone` and `gc`, and the list of a pool: what volumes in an object store
//! share.

use std::ffi::OsString;

use cairn::ImageSpec;
use cairn::objects::{self, Address, Copy, Listing, Stranger, Unreadable};
use cairn_block::ErrorKind;
use serde_json::json;

use crate::failure::{self, Failure, Outcome, Status};
use crate::output::{complain, with_stdout};
use crate::print;

/// What `snapshot` and `clone` copy.
#[derive(Debug, clap::Args)]
struct CopyArgs {
    /// The volume or snapshot: file-store:///DIR, s3://, gs:// or az://, with @NAME. It may be in
    /// use. docs/object-volumes.md has more.
    #[arg(value_name = "ADDRESS")]
    from: OsString,
    /// The name of the copy in the same pool: a-z, 0-9, '.', '_' and '-'.
    #[arg(value_name = "NEW")]
    name: String,
}

/// Arguments of `snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn snapshot file-store:///srv/pool monday
  cairn snapshot s3://bucket/disks@web web-2026-11-27

The snapshot has what the volume has flushed: of a mount, the files that were synced (fsync, \
`sync FILE`), and all of it with `cairn freeze`, which also makes the snapshot clean. It takes \
as long for a large volume as for a small one. Nobody can write it: clone it for that. Prints its \
address.")]
pub struct SnapshotArgs {
    #[command(flatten)]
    copy: CopyArgs,
}

/// Arguments of `clone`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn clone file-store:///srv/pool second
  cairn clone s3://bucket/disks@web-2026-11-27 web-test

The clone has what the volume or snapshot has flushed, and shares its objects until one of them \
is written. Prints its address.")]
pub struct CloneArgs {
    #[command(flatten)]
    copy: CopyArgs,
}

/// Arguments of `gc`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cairn gc file-store:///srv/pool
  cairn gc --remove old file-store:///srv/pool

Volumes may be in use meanwhile. An open volume also removes what it no longer needs by itself; \
gc finds what removed volumes and killed writers have left. While a volume of the pool cannot be \
read, nothing is removed. Links and files of other users that are in the way are named and left \
alone.")]
pub struct GcArgs {
    /// First remove this volume or snapshot. May be repeated: if one cannot be removed, none is.
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
    /// Remove a volume although a writer has it open: its data is lost.
    #[arg(short = 'F', long, requires = "remove")]
    force: bool,
    /// Read all objects of all volumes first, and compare their checksums. If one is damaged or
    /// lost, no object is removed.
    #[arg(long)]
    verify: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The pool: the address of any of its volumes.
    #[arg(value_name = "POOL")]
    pool: OsString,
}

fn address(name: &OsString) -> Outcome<Address> {
    let image = ImageSpec::parse(name)?;
    Ok(objects::address(&image)?.clone())
}

/// Makes a snapshot.
///
/// # Errors
/// There is no such volume, the name is taken, or the store fails.
pub fn snapshot(args: &SnapshotArgs) -> Outcome {
    copy(&args.copy, Copy::Snapshot)
}

/// Makes a clone.
///
/// # Errors
/// As [`snapshot`].
pub fn clone(args: &CloneArgs) -> Outcome {
    copy(&args.copy, Copy::Clone)
}

fn copy(args: &CopyArgs, kind: Copy) -> Outcome {
    let made = objects::copy(&address(&args.from)?, &args.name, kind)?;
    with_stdout(|output| writeln!(output, "{made}"))
}

/// Removes volumes and objects.
///
/// # Errors
/// There is no such volume, it is in use, an object is damaged, or the store fails.
pub fn gc(args: &GcArgs) -> Outcome {
    let pool = address(&args.pool)?;
    objects::remove_all(&pool, &args.remove, args.force)
        .map_err(|error| not_removed(&pool, &args.remove, error))?;
    let verified = if args.verify { Some(verify(&pool)?) } else { None };
    let done = objects::gc(&pool).map_err(|error| given_up(&pool, error))?;
    tell(&pool, &done.left);
    with_stdout(|output| {
        if args.json {
            let object = json!({
                "pool": pool.place.to_string(),
                "removed": args.remove,
                "verified": verified,
                "objects": done.objects,
                "bytes": done.bytes,
                "unfinished": done.unfinished,
                "left": left(&done.left),
            });
            return writeln!(output, "{object:#}");
        }
        if let Some(objects) = verified {
            writeln!(output, "{objects} objects verified")?;
        }
        writeln!(output, "{} objects removed, {}", done.objects, print::size(done.bytes))?;
        match done.unfinished {
            0 => Ok(()),
            files => writeln!(output, "{files} unfinished files of killed processes removed"),
        }
    })
}

/// The failure to remove volumes, and how those that are in the way of it are given up.
fn not_removed(pool: &Address, names: &[String], error: cairn::Error) -> Failure {
    let (volumes, unreadable) = objects::volumes(pool).unwrap_or_default();
    let failure = Failure::from(error);
    let written = volumes.iter().filter(|one| one.writer.is_some()).map(|one| &one.name);
    let (in_the_way, why): (Vec<&String>, _) = match failure.status {
        Status::Busy => (written.collect(), "if its writer has ended, or its data may be lost"),
        _ => (unreadable.iter().map(|one| &one.name).collect(), "to give up what is lost"),
    };
    match in_the_way.into_iter().find(|name| names.contains(name)) {
        Some(name) => failure.leaving(format!("{why}, cairn gc --force --remove {name}")),
        None => failure,
    }
}

/// The failure of a gc, and how the volumes that it could not read are given up.
fn given_up(pool: &Address, error: cairn::Error) -> Failure {
    let unreadable = objects::volumes(pool).map(|(_, unreadable)| unreadable).unwrap_or_default();
    let failure = Failure::from(error);
    match &unreadable[..] {
        [] => failure,
        all => {
            let names: Vec<_> = all.iter().map(|one| format!(" --remove {}", one.name)).collect();
            failure.leaving(format!("to give up what is lost, cairn gc --force{}", names.concat()))
        }
    }
}

/// Names what belongs to no volume.
fn tell(pool: &Address, strangers: &[Stranger]) {
    for Stranger { name, reason } in strangers {
        let name = print::escaped(name.as_bytes());
        complain(format_args!("warning: {}: {name} is left alone: {reason}", pool.place));
    }
}

fn left(strangers: &[Stranger]) -> Vec<serde_json::Value> {
    let one = |one: &Stranger| json!({ "name": one.name, "reason": one.reason });
    strangers.iter().map(one).collect()
}

fn of_pool(pool: &Address, name: &str) -> Address {
    Address { volume: name.to_owned(), ..pool.clone() }
}

/// How many objects the volumes of a pool have. Shared ones are read once for each volume.
fn verify(pool: &Address) -> Outcome<u64> {
    let mut read = 0;
    let (volumes, unreadable) = objects::volumes(pool)?;
    let verified = failure::each(&volumes, |volume| {
        let address = of_pool(pool, &volume.name);
        let (objects, damaged) = objects::verify(&address)?;
        read += objects;
        failure::each(damaged, |why| {
            Err(Failure::new(Status::Corrupt, format!("{address}: {why}")))
        })
    });
    let advice = "; to give it up, cairn gc --force --remove";
    failure::all([verified, failed(pool, &unreadable, advice)])?;
    Ok(read)
}

/// Fails for each volume that cannot be read.
fn failed(pool: &Address, unreadable: &[Unreadable], advice: &str) -> Outcome {
    failure::each(unreadable, |Unreadable { name, error }| {
        let address = of_pool(pool, name);
        let advice = if advice.is_empty() { String::new() } else { format!("{advice} {name}") };
        let status = match error.kind {
            ErrorKind::PermissionDenied => Status::NoImage,
            _ => Status::Corrupt,
        };
        Err(Failure::new(status, format!("{address}: {error}{advice}")))
    })
}

/// Lists the volumes of a pool.
///
/// # Errors
/// The image is in no pool; a damaged manifest, after the others are listed; or the store.
pub fn list(image: &ImageSpec, json: bool) -> Outcome {
    let pool = objects::address(image)?;
    let found = objects::volumes(pool).and_then(|found| Ok((found, objects::strangers(pool)?)));
    let ((volumes, unreadable), strangers) = match found {
        Ok(found) => found,
        Err(error) => {
            let failure = Failure::from(error);
            if json {
                with_stdout(|output| crate::json::failure(output, &failure))?;
            }
            return Err(failure);
        }
    };
    tell(pool, &strangers);
    with_stdout(|output| {
        if !json {
            return output.bytes(table(&volumes, &unreadable).as_bytes());
        }
        let volumes: Vec<_> = volumes.iter().map(|one| as_json(pool, one)).collect();
        let why = |one: &Unreadable| json!({ "name": one.name, "reason": one.error.to_string() });
        let unreadable: Vec<_> = unreadable.iter().map(why).collect();
        let place = pool.place.to_string();
        let left = left(&strangers);
        let object =
            json!({ "pool": place, "volumes": volumes, "unreadable": unreadable, "left": left });
        writeln!(output, "{object:#}")
    })?;
    failed(pool, &unreadable, "")
}

fn as_json(pool: &Address, volume: &Listing) -> serde_json::Value {
    let writer = volume.writer.as_ref();
    json!({
        "name": volume.name,
        "address": of_pool(pool, &volume.name).to_string(),
        "size": volume.size,
        "snapshot": volume.read_only,
        "writer": writer.map(|(host, process)| json!({ "host": host, "process": process })),
    })
}

fn table(volumes: &[Listing], unreadable: &[Unreadable]) -> String {
    let heading = ["name", "size", "kind", "writer"].map(String::from);
    let row = |one: &Listing| {
        let kind = if one.read_only { "snapshot" } else { "volume" };
        let writer = one.writer.as_ref().map_or("-".into(), |(host, process)| {
            format!("{} (process {process})", print::escaped(host.as_bytes()))
        });
        [one.name.clone(), print::size(one.size), kind.into(), writer]
    };
    let bad = |one: &Unreadable| {
        let name = print::escaped(one.name.as_bytes()).to_string();
        [name, "-".into(), "unreadable".into(), "-".into()]
    };
    let rows = volumes.iter().map(row).chain(unreadable.iter().map(bad));
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    print::columns(&rows)
}
