//! Names of images: `IMAGE`, `IMAGE#2` (a partition) or `IMAGE?offset=1048576` (a byte offset).
//! `IMAGE` is a path, the address of an export of an NBD server, or that of an object volume.
//! `?format=` names the format of the disk in it, which otherwise follows from its contents;
//! `?key-file=` or `?key-fd=` has what opens a disk that is encrypted with LUKS. `?io=` says how
//! the bytes of a file are transferred ([`Transfers`]).
//!
//! Nothing is opened here. If a file with the whole name exists, the name means that file: a file
//! called `disk#2` can be named.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cairn_base::names::Escaped;
use cairn_base::options::parse_size;
use cairn_nbd::Address;

use crate::error::{Cause, Error};

mod objects;
mod query;
mod transfers;

pub use objects::ObjectImage;
pub use transfers::Transfers;

/// Which part of a file or device holds the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A partition by its number in the GPT or MBR table, from 1.
    Partition(u32),
    /// Everything from this byte on.
    Offset(u64),
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// A file or block device of this system.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(Box<Address>),
    /// A volume in an object store.
    Objects(Box<ObjectImage>),
}

/// The format of the disk in an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DiskFormat {
    /// What the contents say.
    #[default]
    ByContent,
    /// The bytes of the image are those of the disk.
    Raw,
    /// QEMU's format, versions 2 and 3.
    Qcow2,
    /// A disk compressed with zstd in many frames, which can only be read.
    Zstd,
}

impl DiskFormat {
    const NAMED: [(&'static str, Self); 3] =
        [("raw", Self::Raw), ("qcow2", Self::Qcow2), ("zstd", Self::Zstd)];

    fn parse(text: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, format)| *format)
    }

    fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, format)| *format == self).map(|(name, _)| *name)
    }
}

/// Where the key of an encrypted disk comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The bytes of a file (`?key-file=`).
    File(PathBuf),
    /// What a descriptor of the process gives until its end (`?key-fd=`).
    Descriptor(u32),
}

/// A parsed image name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageSpec {
    /// Where it is.
    pub location: Location,
    /// The format of the disk in it.
    pub format: DiskFormat,
    /// Where the key of an encrypted disk comes from. Without one, a person may be asked
    /// ([`crate::ask_with`]).
    pub key: Option<Key>,
    /// How its bytes are transferred, if it is a file or a block device.
    pub transfers: Transfers,
    /// The part of the disk.
    pub part: Part,
}

impl ImageSpec {
    /// All of a file or device, even if its name contains `#` or `?`.
    #[must_use]
    pub fn whole(path: impl Into<PathBuf>) -> Self {
        Self::at(Location::File(path.into()))
    }

    fn at(location: Location) -> Self {
        Self {
            location,
            format: DiskFormat::default(),
            key: None,
            transfers: Transfers::default(),
            part: Part::Whole,
        }
    }

    /// Parses a name as given on a command line.
    ///
    /// # Errors
    /// The text after `#` is not a partition number, or that after `?` is not understood.
    pub fn parse(name: &OsStr) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::new("", Cause::Address("the image name is empty".into())));
        }
        if name.as_bytes().contains(&0) {
            let name = name.escaped();
            let why = "a name of a file has no NUL: give another";
            return Err(Error::new(name, Cause::Address(why.into())));
        }
        if Path::new(name).exists() {
            return Ok(Self::whole(name));
        }
        let wrong = |why| Error::new(name.escaped(), Cause::Address(why));
        if let Some(address) = name.to_str().filter(|text| Address::is_meant(text)) {
            return remote(address).map_err(wrong);
        }
        if let Some(address) = name.to_str().filter(|text| cairn_objects::is_address(text)) {
            return object_volume(address).map_err(wrong);
        }
        let (path, selector) = split(name.as_bytes());
        let mut image = Self::whole(OsString::from_vec(path.to_vec()));
        let selector = String::from_utf8_lossy(selector);
        if let Some(said) = query::misplaced(path, &selector) {
            return Err(wrong(said));
        }
        image.select(&selector, &mut Vec::new()).map_err(wrong)?;
        Ok(image)
    }

    /// Takes over `?format=…&offset=…#2`. Items of the query that are not known go to `others`.
    fn select<'t>(&mut self, selector: &'t str, others: &mut Vec<&'t str>) -> Result<(), String> {
        let (query, number) = match selector.split_once('#') {
            Some((query, number)) => (query, Some(number)),
            None => (selector, None),
        };
        query::check(query)?;
        let mut parts: Vec<Part> = number.map(partition).transpose()?.into_iter().collect();
        let is_address = self.file().is_none();
        for item in query::items(query) {
            match item.split_once('=') {
                Some(("offset", offset)) => parts.push(Part::Offset(bytes(offset)?)),
                Some(("format", name)) => {
                    self.format = DiskFormat::parse(name).ok_or_else(|| {
                        format!("'{name}' is not a format of disks: give raw, qcow2 or zstd")
                    })?;
                }
                // As cryptsetup has it: what standard input gives.
                Some(("key-file", "-")) => self.key = Some(Key::Descriptor(0)),
                Some(("key-file", path)) if !path.is_empty() => {
                    self.key = Some(Key::File(path.into()));
                }
                Some(("key-fd", number)) => {
                    let number = number.parse().map_err(|_| {
                        format!("'{number}' is not a descriptor: give its number, as key-fd=3")
                    })?;
                    self.key = Some(Key::Descriptor(number));
                }
                _ if is_address => others.push(item),
                Some(("io", name)) => {
                    self.transfers = Transfers::parse(name).ok_or_else(|| {
                        format!("'{name}' is no way to a disk: give auto, direct or buffered")
                    })?;
                }
                _ => {
                    return Err(format!(
                        "'?{item}' is not understood; only ?offset=BYTES, ?format=raw (or \
                         qcow2, zstd), ?key-file=FILE, ?key-fd=N and ?io=auto (or \
                         direct, buffered) can follow the image's name, with & between them"
                    ));
                }
            }
        }
        self.part = match parts.as_slice() {
            [] => Part::Whole,
            [part] => *part,
            _ => return Err("it names several parts of the disk: give one".into()),
        };
        Ok(())
    }

    /// The file or block device; `None` if the image is not one of this system.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.location {
            Location::File(path) => Some(path),
            Location::Nbd(_) | Location::Objects(_) => None,
        }
    }

    /// Whether it is there, as far as its name tells.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.file().is_none_or(Path::exists)
    }

    /// Whether both name one disk, however each opens it.
    #[must_use]
    pub fn is_same_disk(&self, other: &Self) -> bool {
        match (&self.location, &other.location) {
            (Location::Objects(one), Location::Objects(other)) => one.address == other.address,
            (one, other) => one == other,
        }
    }

    /// The name of what holds the image, without the part of it.
    #[must_use]
    pub fn name(&self) -> PathBuf {
        match &self.location {
            Location::File(path) => path.clone(),
            Location::Nbd(address) => address.to_string().into(),
            Location::Objects(volume) => volume.to_string().into(),
        }
    }

    /// The name that [`ImageSpec::parse`] reads back, byte for byte.
    #[must_use]
    pub fn to_os_string(&self) -> OsString {
        let mut name = self.name().into_os_string();
        let mut items = Vec::new();
        items.extend(self.format.name().map(|format| format!("format={format}")));
        if let Part::Offset(offset) = self.part {
            items.push(format!("offset={offset}"));
        }
        items.extend(self.transfers.name().map(|name| format!("io={name}")));
        items.extend(self.key.iter().map(|key| match key {
            Key::File(path) => format!("key-file={}", path.display()),
            Key::Descriptor(number) => format!("key-fd={number}"),
        }));
        if !items.is_empty() {
            let has_query = self.file().is_none() && name.as_bytes().contains(&b'?');
            name.push(if has_query { "&" } else { "?" });
            name.push(items.join("&"));
        }
        if let Part::Partition(number) = self.part {
            name.push(format!("#{number}"));
        }
        name
    }

    /// The same image with an absolute path, so that it means the same from another working
    /// directory.
    ///
    /// # Errors
    /// The file does not exist or cannot be reached.
    pub fn canonical(&self) -> Result<Self, Error> {
        let location = match &self.location {
            Location::File(path) => {
                Location::File(std::fs::canonicalize(path).map_err(|error| {
                    let operation = format!("open {}", path.escaped());
                    Error::new(self, Cause::Open(cairn_block::Error::from_io(operation, error)))
                })?)
            }
            // Sockets have paths, too.
            Location::Nbd(address) => Location::Nbd(Box::new(absolute(address))),
            Location::Objects(volume) => Location::Objects(Box::new(volume.absolute())),
        };
        let key = match &self.key {
            Some(Key::File(path)) => {
                Some(std::path::absolute(path).map(Key::File).map_err(|error| {
                    let error = cairn_block::Error::from_io("find the key file", error);
                    Error::new(self, Cause::Open(error))
                })?)
            }
            other => other.clone(),
        };
        Ok(Self { location, key, ..self.clone() })
    }
}

/// Parses the address of an object volume.
fn object_volume(text: &str) -> Result<ImageSpec, String> {
    let at = text.find(['?', '#']).unwrap_or(text.len());
    let (base, selector) = text.split_at(at);
    let address = cairn_objects::Address::parse(base).map_err(|error| error.to_string())?;
    let mut volume = ObjectImage::new(address);
    let mut image = ImageSpec::at(Location::Objects(Box::new(volume.clone())));
    let mut others = Vec::new();
    image.select(selector, &mut others)?;
    volume.select(&others)?;
    image.location = Location::Objects(Box::new(volume));
    Ok(image)
}

/// The path, and what selects a part or a format: from the last mark on, or from a query before
/// `#`. A mark before a slash is part of a directory's name.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let mark = |wanted: u8| name.iter().rposition(|byte| *byte == wanted);
    let at = match (mark(b'?'), mark(b'#')) {
        (Some(query), Some(hash)) if query < hash => {
            let between = name.get(query + 1..hash).unwrap_or_default();
            let ours: [&[u8]; 5] = [b"offset=", b"format=", b"key-file=", b"key-fd=", b"io="];
            let is_ours = ours.iter().any(|item| between.starts_with(item));
            if is_ours { query } else { hash }
        }
        (query, hash) => query.max(hash).unwrap_or(name.len()),
    };
    let (path, selector) = name.split_at(at);
    // If a slash follows the mark, the mark is part of a directory's name; but the path of a key
    // file has slashes.
    let has_key = selector.windows(9).any(|part| part == b"key-file=");
    match path.is_empty() || selector.contains(&b'/') && !has_key {
        true => (name, b""),
        false => (path, selector),
    }
}

/// Parses the address of an export. The part and the format are not the server's.
fn remote(text: &str) -> Result<ImageSpec, String> {
    let at = text.find(['?', '#']).unwrap_or(text.len());
    let (base, selector) = text.split_at(at);
    let mut others = Vec::new();
    let placeholder = Address::parse("nbd://localhost").map_err(|error| error.to_string())?;
    let mut image = ImageSpec::at(Location::Nbd(Box::new(placeholder)));
    image.select(selector, &mut others)?;
    let address = match others.as_slice() {
        [] => base.to_owned(),
        others => format!("{base}?{}", others.join("&")),
    };
    let address = Address::parse(&address).map_err(|error| error.to_string())?;
    image.location = Location::Nbd(Box::new(address));
    Ok(image)
}

/// The same export, from whatever directory.
fn absolute(address: &Address) -> Address {
    let mut address = address.clone();
    let socket = match &mut address.place {
        cairn_nbd::Place::Unix(path) => Some(path),
        cairn_nbd::Place::Tcp { .. } => None,
    };
    let authorities = address.tls.as_mut().and_then(|tls| tls.authorities.as_mut());
    for path in socket.into_iter().chain(authorities) {
        if let Ok(found) = std::path::absolute(&path) {
            *path = found;
        }
    }
    address
}

fn partition(number: &str) -> Result<Part, String> {
    if let Some((number, query)) = number.split_once('?') {
        return Err(format!("the part comes last, as in 'IMAGE?{query}#{number}'"));
    }
    match number.parse() {
        Ok(number) if number > 0 => Ok(Part::Partition(number)),
        _ => Err(format!(
            "'{number}' is not a partition number; partitions count from 1, as in IMAGE#2"
        )),
    }
}

fn bytes(offset: &str) -> Result<u64, String> {
    parse_size(offset).ok_or_else(|| {
        format!("'{offset}' is not a number of bytes, as in ?offset=1048576 or ?offset=1M")
    })
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_os_string().escaped())
    }
}

#[cfg(test)]
mod tests;
