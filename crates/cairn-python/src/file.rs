//! An open file. Its class in Python is `cairn.File`, an `io.RawIOBase`.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::stat::{Stat, stat_of};
use crate::{errors, work};

/// An open file, and the volume that stays open for it.
pub(crate) struct Open {
    // Closed before the volume is let go.
    pub(crate) file: cairn::fs::File,
    pub(crate) volume: Arc<cairn::Volume>,
}

/// An open file.
#[pyclass(frozen, module = "cairn._cairn")]
pub(crate) struct File {
    open: Mutex<Option<Arc<Open>>>,
    /// The path that it was opened by, which errors name.
    path: Vec<u8>,
}

impl File {
    pub(crate) fn new(open: Open, path: &[u8]) -> Self {
        Self { open: Mutex::new(Some(Arc::new(open))), path: path.to_vec() }
    }

    fn get(&self) -> PyResult<Arc<Open>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| errors::closed("file"))
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&cairn::fs::File) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        let open = self.get()?;
        let result = work::on(py, &open.volume, || call(&open.file));
        let result = result.map_err(errors::at(&self.path));
        // A file that was closed meanwhile is closed here.
        work::on(py, &open.volume.clone(), || drop(open));
        result
    }
}

#[pymethods]
impl File {
    /// At most so many bytes, from an offset or from the position.
    #[pyo3(signature = (length, offset=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: Option<u64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.call(py, |file| {
            // Not more than the file has, whatever is asked for.
            let size = file.metadata()?.len();
            let from = match offset {
                Some(offset) => offset,
                None => (&mut &*file).stream_position()?,
            };
            let rest = usize::try_from(size.saturating_sub(from)).unwrap_or(usize::MAX);
            let mut bytes = Vec::new();
            let want = length.min(rest);
            if bytes.try_reserve_exact(want).is_err() {
                return Err(std::io::ErrorKind::OutOfMemory.into());
            }
            bytes.resize(want, 0);
            let read = match offset {
                Some(offset) => file.read_at(&mut bytes, offset)?,
                None => (&mut &*file).read(&mut bytes)?,
            };
            bytes.truncate(read);
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &read))
    }

    /// Writes at an offset or at the position. The number of bytes that had room.
    #[pyo3(signature = (data, offset=None))]
    fn write(&self, py: Python<'_>, data: &[u8], offset: Option<u64>) -> PyResult<usize> {
        self.call(py, |file| match offset {
            Some(offset) => file.write_at(data, offset),
            None => (&mut &*file).write(data),
        })
    }

    /// Moves the position, as `lseek`, with the numbers of Linux.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let before = || PyValueError::new_err("a position before the start of the file");
        let start = u64::try_from(offset);
        let to = match whence {
            0 => SeekFrom::Start(start.map_err(|_| before())?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            3 | 4 => {
                let what = if whence == 3 { cairn::Seek::Data } else { cairn::Seek::Hole };
                let start = start.map_err(|_| before())?;
                let found = self.call(py, |file| file.find(what, start))?;
                let none = "there is nothing but a hole from there to the end of the file";
                SeekFrom::Start(found.ok_or_else(|| errors::named(6, none, &self.path))?)
            }
            _ => return Err(PyValueError::new_err("whence is 0 to 4 (os.SEEK_*)")),
        };
        self.call(py, |file| (&mut &*file).seek(to))
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(size))
    }

    /// Makes it durable.
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.call(py, |file| if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// As `Volume.stat`.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.call(py, |file| Ok(stat_of(&file.metadata()?)))
    }

    /// Closes it. Again is allowed.
    fn close(&self, py: Python<'_>) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(open) = open {
            work::on(py, &open.volume.clone(), || drop(open));
        }
    }
}
