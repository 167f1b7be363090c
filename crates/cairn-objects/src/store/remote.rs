//! [`RemoteStore`]: S3, Google Cloud Storage and Azure, through the `object_store` crate.
//!
//! Credentials, region and endpoint come from the environment. The asynchronous runtime and its
//! threads are inside: a call blocks its caller.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::system_error;
use futures::StreamExt;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, ObjectStore, PutMode, PutOptions, PutPayload, PutResult, RetryConfig,
    UpdateVersion,
};
use tokio::runtime::Runtime;

use super::{Condition, Error, ErrorKind, Listed, Object, RESTORE, Result, Store, Tag};
use crate::address::Place;

/// Threads of the asynchronous runtime. They move bytes only.
const THREADS: usize = 2;
/// A request without an answer fails after this long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The crate repeats a request so often; the volume repeats it for longer.
const RETRIES: usize = 2;

/// A store in the network.
pub(crate) struct RemoteStore {
    inner: Box<dyn ObjectStore>,
    prefix: String,
    place: Place,
    runtime: Runtime,
}

impl RemoteStore {
    /// Prepares requests to a bucket. None is made yet.
    pub(crate) fn connect(place: &Place) -> cairn_block::Result<Self> {
        let options = ClientOptions::new().with_timeout(TIMEOUT).with_allow_http(true);
        let retry =
            RetryConfig { max_retries: RETRIES, retry_timeout: TIMEOUT, ..RetryConfig::default() };
        let built = match place {
            Place::S3 { bucket, .. } => AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_client_options(options)
                .with_retry(retry)
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .build()
                .map(|store| Box::new(store) as Box<dyn ObjectStore>),
            Place::Gs { bucket, .. } => GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_client_options(options)
                .with_retry(retry)
                .build()
                .map(|store| Box::new(store) as Box<dyn ObjectStore>),
            Place::Az { container, .. } => MicrosoftAzureBuilder::from_env()
                .with_container_name(container)
                .with_client_options(options)
                .with_retry(retry)
                .build()
                .map(|store| Box::new(store) as Box<dyn ObjectStore>),
            Place::Directory(path) => {
                unreachable!("{} is opened as a directory", path.display())
            }
        };
        let inner = built.map_err(|source| error(place, "", &source))?;
        let prefix = match place {
            Place::S3 { prefix, .. } | Place::Gs { prefix, .. } | Place::Az { prefix, .. } => {
                prefix.clone()
            }
            Place::Directory(_) => String::new(),
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("objects-net").enable_all();
        let runtime = runtime.build().map_err(|source| {
            let why = system_error::with_remedy(&source, "free memory");
            cairn_block::Error::new(cairn_block::ErrorKind::NoMemory, "start threads", why)
        })?;
        Ok(Self { inner, prefix, place: place.clone(), runtime })
    }

    /// The whole name in the bucket.
    fn whole(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    fn path(&self, name: &str) -> Result<Path> {
        Path::parse(self.whole(name)).map_err(|bad| {
            Error::new(ErrorKind::Failed, format!("{name}: {bad}: use another prefix"))
        })
    }

    fn failed(&self, name: &str, source: &object_store::Error) -> Error {
        error(&self.place, name, source)
    }

    async fn list_names(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        // The crate takes whole parts of names as a prefix.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = self.path(folder)?;
        let offset = self.path(after)?;
        let (prefix, cut) = (self.whole(prefix), self.whole("").len());
        let mut stream = self.inner.list_with_offset(Some(&folder), &offset);
        let mut found = Vec::new();
        while let Some(meta) = stream.next().await {
            let meta = meta.map_err(|source| self.failed(&prefix, &source))?;
            let name = meta.location.as_ref();
            if name.starts_with(&prefix) {
                let name = name.get(cut..).unwrap_or_default().to_owned();
                found.push(Listed { name, size: meta.size });
            } else if name > prefix.as_str() && self.sorts() {
                break;
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Lists come in the order of names.
    const fn sorts(&self) -> bool {
        matches!(self.place, Place::S3 { .. } | Place::Gs { .. })
    }
}

/// Both kinds of versions: S3 and Azure compare the first, Google the second.
fn tag(e_tag: Option<String>, version: Option<String>) -> Tag {
    Tag(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default()))
}

fn version(tag: &Tag) -> UpdateVersion {
    let (e_tag, version) = tag.0.split_once('\n').unwrap_or((&tag.0, ""));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion { e_tag: some(e_tag), version: some(version) }
}

/// What sets the credentials.
const fn credentials(place: &Place) -> &'static str {
    match place {
        Place::Gs { .. } => "set GOOGLE_APPLICATION_CREDENTIALS",
        Place::Az { .. } => "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    }
}

fn error(place: &Place, name: &str, source: &object_store::Error) -> Error {
    use object_store::Error as E;
    let at = if name.is_empty() { place.to_string() } else { format!("{place}: {name}") };
    // One line, whatever the server has sent.
    let words = source.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let (kind, advice) = match source {
        E::NotFound { .. } => {
            let detail = format!("{at}: there is no such object, or no such bucket");
            return Error::new(ErrorKind::Missing, detail);
        }
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => {
            return Error::new(ErrorKind::Conflict, format!("{at}: the object is not what it was"));
        }
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            (ErrorKind::Denied, credentials(place))
        }
        E::NotSupported { .. } | E::NotImplemented => (ErrorKind::Unsupported, "use another store"),
        _ if words.contains("instance metadata") || words.contains("redential") => {
            (ErrorKind::Denied, credentials(place))
        }
        // A range behind the end of an object: nobody asks for that while it is whole.
        _ if words.contains("416") && words.to_lowercase().contains("range") => {
            (ErrorKind::Failed, RESTORE)
        }
        // A request that is wrong will be wrong again.
        _ if words.contains("status 4") || words.contains("status code: 4") => {
            (ErrorKind::Failed, "look at the address, the region and the credentials")
        }
        E::Generic { .. } => (ErrorKind::Transient, "look whether the store can be reached"),
        _ => (ErrorKind::Failed, "look at the address and the environment"),
    };
    Error::new(kind, format!("{at}: {words}: {advice}"))
}

impl Store for RemoteStore {
    fn put(&self, name: &str, parts: &[Bytes], condition: Condition<'_>) -> Result<Tag> {
        let path = self.path(name)?;
        let mode = match condition {
            Condition::IfAbsent => PutMode::Create,
            Condition::IfMatch(tag) => PutMode::Update(version(tag)),
        };
        let payload: PutPayload = parts.iter().filter(|part| !part.is_empty()).cloned().collect();
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.runtime.block_on(self.inner.put_opts(&path, payload, options));
        let PutResult { e_tag, version, .. } = put.map_err(|source| self.failed(name, &source))?;
        Ok(tag(e_tag, version))
    }

    fn get(&self, name: &str) -> Result<Object> {
        let path = self.path(name)?;
        let get = async {
            let answer = self.inner.get(&path).await?;
            let tag = tag(answer.meta.e_tag.clone(), answer.meta.version.clone());
            Ok(Object { bytes: answer.bytes().await?, tag })
        };
        self.runtime.block_on(get).map_err(|source| self.failed(name, &source))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(name)?;
        let get = self.inner.get_range(&path, range);
        self.runtime.block_on(get).map_err(|source| self.failed(name, &source))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        // No object has the prefix itself as its name.
        self.runtime.block_on(self.list_names(prefix, after.unwrap_or(prefix)))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match self.runtime.block_on(self.inner.delete(&path)) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(|source| self.failed(name, &source)),
        }
    }
}
