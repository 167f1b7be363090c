/* Cairn: ext4 and F2FS volumes in an ordinary process. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Made from the Rust sources by `make header`: change those.
 *
 * Results. A call that returns int gives 0, or an errno as a negative number; one that returns
 * int64_t gives a count or a position, or a negative errno. cairn_last_error() then says in words
 * what happened and what to do. A call that takes a handle or a string refuses NULL with -EINVAL.
 *
 * Paths begin at the volume's root, with or without a slash. Symbolic links lead to files of the
 * volume, never to those of the system. Permissions are not checked. An empty path is -ENOENT, a
 * name of more than 255 bytes -ENAMETOOLONG; a path may be longer than PATH_MAX.
 *
 * Threads. Any number of threads may use a volume and its files at once, except that a handle is
 * closed once, by the last thread that uses it.
 *
 * What was written is durable after cairn_file_sync(), cairn_sync() or cairn_close().
 */

#ifndef CAIRN_H
#define CAIRN_H

#include <stddef.h>
#include <stdint.h>

// Opens a volume for reading: nothing is written to the image.
#define CAIRN_READ 0

// Opens a volume for reading and writing.
#define CAIRN_WRITE 1

// Keeps changes in memory, and drops them with the volume.
#define CAIRN_EPHEMERAL 2

// Lets cairn_mkfs() replace what the image holds.
#define CAIRN_OVERWRITE 1

// An open directory.
typedef struct cairn_dir cairn_dir;

// An open file.
typedef struct cairn_file cairn_file;

// An open volume.
typedef struct cairn_volume cairn_volume;

// How far a check is.
typedef struct cairn_progress {
  // What is checked, such as "inodes"; valid during the call.
  const char *what;
  // Steps of the phase that are done.
  uint64_t done;
  // Steps of the phase.
  uint64_t total;
  // The number of the phase, from 1; 0 before the first.
  uint32_t phase;
  // Number of phases.
  uint32_t phases;
} cairn_progress;

// Called by cairn_check_watched() with what the caller gave as `context`. Ends the check with
// another result than 0. It must return, not jump.
typedef int (*cairn_watch)(const struct cairn_progress *progress, void *context);

// An entry of a directory.
typedef struct cairn_dirent {
  // Inode number.
  uint64_t ino;
  // Kind as in `mode` of cairn_metadata (S_IFREG, S_IFDIR, ...); 0 if the directory does not
  // say.
  uint32_t kind;
  // Bytes of the name, without the NUL.
  uint32_t name_len;
  // The name.
  char name[256];
} cairn_dirent;

// What a volume knows about a file.
typedef struct cairn_metadata {
  // Inode number.
  uint64_t ino;
  // Bytes.
  uint64_t size;
  // Allocated space in units of 512 bytes.
  uint64_t blocks;
  // Last access, in seconds since 1970.
  int64_t atime;
  // Last change of the contents.
  int64_t mtime;
  // Last change of the inode.
  int64_t ctime;
  // Creation, or 0 if the volume does not keep it.
  int64_t btime;
  // Nanoseconds of `atime`.
  uint32_t atime_nsec;
  // Nanoseconds of `mtime`.
  uint32_t mtime_nsec;
  // Nanoseconds of `ctime`.
  uint32_t ctime_nsec;
  // Nanoseconds of `btime`.
  uint32_t btime_nsec;
  // Kind and permission bits: S_ISDIR() and its like read them.
  uint32_t mode;
  // Hard links.
  uint32_t nlink;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // Major number of a device.
  uint32_t rdev_major;
  // Minor number of a device.
  uint32_t rdev_minor;
} cairn_metadata;

// How much room a volume has.
typedef struct cairn_space {
  // Blocks for data.
  uint64_t blocks;
  // Free blocks.
  uint64_t free_blocks;
  // Free blocks that are not reserved for root.
  uint64_t available_blocks;
  // Inodes.
  uint64_t inodes;
  // Free inodes.
  uint64_t free_inodes;
  // Bytes of a block.
  uint32_t block_size;
  // Longest name in bytes.
  uint32_t name_max;
} cairn_space;

// Called by cairn_walk() for each file, with the path below the start ("" for the start), which
// is valid during the call, and with what the caller gave as `context`. Ends the walk with
// another result than 0. It must return, not jump.
typedef int (*cairn_visit)(const char *path, const struct cairn_metadata *metadata, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Checks the volume in `image`, which nobody has open for writing and which is only read. Gives
// the number of defects. If there are any, cairn_last_error() has the first of them.
int64_t cairn_check(const char *image);

// As cairn_check(), and calls `watch` in the calling thread when the check has come further, at
// least ten times a second. If that ends the check, the result is -ECANCELED.
int64_t cairn_check_watched(const char *image, cairn_watch watch, void *context);

// Opens a directory.
int cairn_dir_open(const struct cairn_volume *volume,
                   const char *path,
                   struct cairn_dir **directory);

// The next entry, without "." and "..", in the directory's own order. Gives 1 if there is one and
// 0 at the end.
int cairn_dir_next(const struct cairn_dir *directory, struct cairn_dirent *entry);

// Closes a directory. NULL is allowed.
int cairn_dir_close(struct cairn_dir *directory);

// What the last call that failed in this thread has to say: what happened, and what to do. The
// text stays until the next call that fails in this thread; it is empty before the first.
const char *cairn_last_error(void);

// Opens a file. `flags` are those of open(2) (fcntl.h): O_RDONLY, O_WRONLY or O_RDWR, and of
// O_CREAT, O_EXCL, O_TRUNC, O_APPEND those that are wanted. `mode` has the permission bits of a
// file that is made; there is no umask. Directories are not opened: see cairn_dir_open().
int cairn_file_open(const struct cairn_volume *volume,
                    const char *path,
                    int flags,
                    unsigned int mode,
                    struct cairn_file **file);

// Closes a file. This does not make it durable: see cairn_file_sync(). NULL is allowed.
int cairn_file_close(struct cairn_file *file);

// Reads at the file's position, which moves on. Gives fewer bytes than `len` only at the end.
int64_t cairn_file_read(const struct cairn_file *file, void *buffer, size_t len);

// Reads from a byte offset.
int64_t cairn_file_pread(const struct cairn_file *file, void *buffer, size_t len, uint64_t offset);

// Writes at the file's position, which moves on. Gives fewer bytes than `len` if there is no more
// room.
int64_t cairn_file_write(const struct cairn_file *file, const void *data, size_t len);

// Writes at a byte offset; to the end of a file that was opened with O_APPEND.
int64_t cairn_file_pwrite(const struct cairn_file *file,
                          const void *data,
                          size_t len,
                          uint64_t offset);

// Moves the file's position, as lseek(2) with SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA and
// SEEK_HOLE; gives the new one. -ENXIO: there is no data behind `offset`.
int64_t cairn_file_seek(const struct cairn_file *file, int64_t offset, int whence);

// Shortens or lengthens an open file. New bytes are zeros.
int cairn_file_truncate(const struct cairn_file *file, uint64_t size);

// Makes the file durable: contents and attributes, or with `data_only` the contents and what is
// needed to read them.
int cairn_file_sync(const struct cairn_file *file, int data_only);

// What the volume knows about an open file.
int cairn_file_stat(const struct cairn_file *file, struct cairn_metadata *metadata);

// What the volume knows about a file. Symbolic links are followed.
int cairn_stat(const struct cairn_volume *volume,
               const char *path,
               struct cairn_metadata *metadata);

// As cairn_stat(), of a symbolic link itself.
int cairn_lstat(const struct cairn_volume *volume,
                const char *path,
                struct cairn_metadata *metadata);

// The target of a symbolic link: its bytes, without a NUL. Gives its length, which is larger than
// `len` if only a part had room; it is at most 4095.
int64_t cairn_readlink(const struct cairn_volume *volume,
                       const char *path,
                       void *buffer,
                       size_t len);

// Makes a symbolic link at `path` to `target`, which need not exist.
int cairn_symlink(const struct cairn_volume *volume, const char *target, const char *path);

// Makes a directory with these permission bits.
int cairn_mkdir(const struct cairn_volume *volume, const char *path, unsigned int mode);

// Makes a file, FIFO, socket or device. `mode` has its kind (S_IFREG, S_IFIFO, S_IFSOCK, S_IFBLK,
// S_IFCHR) and permission bits. `major` and `minor` are a device's number.
int cairn_mknod(const struct cairn_volume *volume,
                const char *path,
                unsigned int mode,
                unsigned int major,
                unsigned int minor);

// Removes a name that is not a directory's.
int cairn_unlink(const struct cairn_volume *volume, const char *path);

// Removes an empty directory.
int cairn_rmdir(const struct cairn_volume *volume, const char *path);

// Renames a file or directory. One of the new name is replaced.
int cairn_rename(const struct cairn_volume *volume, const char *from, const char *to);

// Gives a file a second name.
int cairn_link(const struct cairn_volume *volume, const char *original, const char *path);

// Shortens or lengthens a file.
int cairn_truncate(const struct cairn_volume *volume, const char *path, uint64_t size);

// Sets the permission bits.
int cairn_chmod(const struct cairn_volume *volume, const char *path, unsigned int mode);

// Sets owner and group; a symbolic link's own. (uint32_t)-1 keeps one.
int cairn_lchown(const struct cairn_volume *volume, const char *path, uint32_t uid, uint32_t gid);

// Sets the times of the last access and of the last change of the contents.
int cairn_utimes(const struct cairn_volume *volume,
                 const char *path,
                 int64_t atime,
                 uint32_t atime_nsec,
                 int64_t mtime,
                 uint32_t mtime_nsec);

// As cairn_utimes(); of a symbolic link its own.
int cairn_lutimes(const struct cairn_volume *volume,
                  const char *path,
                  int64_t atime,
                  uint32_t atime_nsec,
                  int64_t mtime,
                  uint32_t mtime_nsec);

// The version of the library: "0.1.0".
const char *cairn_version(void);

// Makes a volume in `image` ("disk.img", "disk.img#2"). `format` is "ext4" or "f2fs". `size` is
// that of the image file in bytes, which is made if it is missing; 0 keeps the size it has.
// `label` may be NULL. `flags` is 0 or CAIRN_OVERWRITE, without which -EEXIST keeps what is found
// there.
int cairn_mkfs(const char *image,
               const char *format,
               uint64_t size,
               const char *label,
               unsigned int flags);

// Opens the volume in `image`: "disk.img", its partition 2 as "disk.img#2", or
// "disk.img?offset=BYTES". `flags` is CAIRN_READ, CAIRN_WRITE or CAIRN_EPHEMERAL.
// `mount_options` are the kernel's names, separated by commas; NULL for none. A volume that a
// crash has left is recovered, by CAIRN_READ in memory. One that can only be read is opened by
// CAIRN_READ alone: with the others it is -EROFS.
int cairn_open(const char *image,
               unsigned int flags,
               const char *mount_options,
               struct cairn_volume **volume);

// Writes everything, marks the volume clean and closes it. The handle is gone afterwards, also
// after an error, which says that something is not on the medium. While files or directories of
// the volume are open, nothing happens but -EBUSY. NULL is allowed. In a child of fork() it frees
// the handle, and the volume stays open in the parent; no other call is possible there (-EPERM).
int cairn_close(struct cairn_volume *volume);

// Makes everything durable that was written so far.
int cairn_sync(const struct cairn_volume *volume);

// The format of a volume: "ext4" or "f2fs". NULL for NULL.
const char *cairn_format(const struct cairn_volume *volume);

// How much room a volume has.
int cairn_statfs(const struct cairn_volume *volume, struct cairn_space *space);

// Visits a file and everything below it, a directory before its entries. Symbolic links are not
// followed. Gives what `visit` has ended the walk with, or 0.
int cairn_walk(const struct cairn_volume *volume,
               const char *path,
               cairn_visit visit,
               void *context);

// The value of an extended attribute ("user.note"; of a symbolic link its own). Gives its size;
// with a `len` of 0 nothing else. -ENODATA: there is none of this name; -ERANGE: it does not fit.
int64_t cairn_getxattr(const struct cairn_volume *volume,
                       const char *path,
                       const char *name,
                       void *buffer,
                       size_t len);

// The names of all extended attributes, each with a NUL behind it. Gives their size; with a `len`
// of 0 nothing else. -ERANGE: they do not fit.
int64_t cairn_listxattr(const struct cairn_volume *volume,
                        const char *path,
                        void *buffer,
                        size_t len);

// Makes or replaces an extended attribute.
int cairn_setxattr(const struct cairn_volume *volume,
                   const char *path,
                   const char *name,
                   const void *value,
                   size_t len);

// Removes an extended attribute.
int cairn_removexattr(const struct cairn_volume *volume, const char *path, const char *name);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* CAIRN_H */
