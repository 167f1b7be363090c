/* The numbers and words of errors: errnos DIR, which has a directory "ro" on a read-only filesystem
 * and "full" on one without room. */

#include "cairn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *base;
static int failures;

/* A path in DIR. Two may be in use at once. */
static const char *in_dir(const char *name)
{
    static char paths[2][4096];
    static int next;
    next = !next;
    snprintf(paths[next], sizeof paths[next], "%s/%s", base, name);
    return paths[next];
}

static void check(long got, long wanted, const char *named, const char *what)
{
    const char *words = cairn_last_error();
    if (got == wanted && (!named || strstr(words, named)))
        return;
    fprintf(stderr, "%s: %ld (%s), wanted %ld, naming %s\n", what, got, words, wanted, named);
    failures++;
}

#define CHECK(call, wanted, named) check((long)(call), (long)(wanted), named, #call)

/* Calls that take a path of the host. */
static void of_host(void)
{
    static const struct {
        const char *name;
        int opened, made;
    } cases[] = {
        {"none", ENOENT, 0},
        {"none/image", ENOENT, ENOENT},
        {"file/image", ENOTDIR, ENOTDIR},
        {"loop", ELOOP, ELOOP},
        {"ro/image", ENOENT, EROFS},
        {"full/image", ENOENT, ENOSPC},
        {"", 0, 0},
    };
    char long_name[300];
    cairn_volume *volume;
    for (int at = 0; *cases[at].name; at++) {
        const char *path = in_dir(cases[at].name);
        CHECK(cairn_open(path, CAIRN_READ, NULL, &volume), -cases[at].opened, path);
        CHECK(cairn_open(path, CAIRN_WRITE, NULL, &volume), -cases[at].opened, path);
        CHECK(cairn_check(path), -cases[at].opened, path);
        if (cases[at].made) {
            CHECK(cairn_mkfs(path, "ext4", 16 << 20, NULL, 0), -cases[at].made, path);
            CHECK(cairn_mkfs(path, "f2fs", 64 << 20, NULL, 0), -cases[at].made, path);
            CHECK(access(path, F_OK), -1, NULL);
        }
    }
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK(cairn_open(in_dir(long_name), CAIRN_READ, NULL, &volume), -ENAMETOOLONG, "name too long");
    CHECK(cairn_mkfs(in_dir(long_name), "ext4", 16 << 20, NULL, 0), -ENAMETOOLONG, "too long");
    CHECK(cairn_mkfs(in_dir("huge"), "ext4", UINT64_MAX, NULL, 0), -EINVAL, "huge");
    /* Some hosts take such a file; then no format does. */
    int huge = cairn_mkfs(in_dir("huge"), "ext4", (uint64_t)1 << 62, NULL, 0);
    CHECK(huge == -EFBIG || huge == -EINVAL, 1, "huge");
    CHECK(cairn_mkfs(in_dir("huge"), "f2fs", UINT64_MAX, NULL, 0), -EINVAL, "huge");
    CHECK(cairn_mkfs(in_dir("huge"), "ext4", 0, NULL, 0), -EINVAL, "give its size");
    CHECK(access(in_dir("huge"), F_OK), -1, NULL);
    CHECK(cairn_mkfs(in_dir("file"), "ext4", 16 << 20, NULL, 0), -EEXIST, "file");
    CHECK(cairn_mkfs(in_dir("directory"), "ext4", 16 << 20, NULL, 0), -EISDIR, "directory");
    CHECK(cairn_open(in_dir("directory"), CAIRN_READ, NULL, &volume), -EISDIR, "directory");
    CHECK(cairn_check(in_dir("directory")), -EISDIR, "directory");
    /* What can only be read. */
    CHECK(cairn_open(in_dir("image"), CAIRN_WRITE, "ro", &volume), -EROFS, "only be read");
    CHECK(cairn_open(in_dir("image"), CAIRN_EPHEMERAL, "ro", &volume), -EROFS, "image");
    CHECK(volume == NULL, 1, NULL);
    if (strstr(cairn_last_error(), "--"))
        CHECK(1, 0, "no option of the program");
    /* An ordinary user. */
    CHECK(seteuid(65534), 0, NULL);
    CHECK(cairn_open(in_dir("secret/image"), CAIRN_READ, NULL, &volume), -EACCES, "secret");
    CHECK(cairn_mkfs(in_dir("secret/new"), "ext4", 16 << 20, NULL, 0), -EACCES, "secret");
    CHECK(cairn_open(in_dir("image"), CAIRN_WRITE, NULL, &volume), -EACCES, "image");
    CHECK(seteuid(0), 0, NULL);
}

static int visit(const char *path, const cairn_metadata *found, void *context)
{
    (void)path, (void)found, (void)context;
    return 0;
}

/* All calls that take a path of the volume, with one that has an error. */
static void each_call(cairn_volume *volume, const char *path, int wanted)
{
    char bytes[8];
    cairn_metadata found;
    cairn_file *file;
    cairn_dir *dir;
    CHECK(cairn_stat(volume, path, &found), wanted, path);
    CHECK(cairn_lstat(volume, path, &found), wanted, path);
    CHECK(cairn_readlink(volume, path, bytes, 8), wanted, path);
    CHECK(cairn_unlink(volume, path), wanted, path);
    CHECK(cairn_rmdir(volume, path), wanted, path);
    CHECK(cairn_rename(volume, path, "/to"), wanted, path);
    CHECK(cairn_link(volume, path, "/to"), wanted, path);
    CHECK(cairn_truncate(volume, path, 1), wanted, path);
    CHECK(cairn_chmod(volume, path, 0644), wanted, path);
    CHECK(cairn_lchown(volume, path, 1, 1), wanted, path);
    CHECK(cairn_utimes(volume, path, 1, 0, 1, 0), wanted, path);
    CHECK(cairn_lutimes(volume, path, 1, 0, 1, 0), wanted, path);
    CHECK(cairn_getxattr(volume, path, "user.a", bytes, 8), wanted, path);
    CHECK(cairn_setxattr(volume, path, "user.a", "b", 1), wanted, path);
    CHECK(cairn_removexattr(volume, path, "user.a"), wanted, path);
    CHECK(cairn_listxattr(volume, path, bytes, 8), wanted, path);
    CHECK(cairn_walk(volume, path, visit, NULL), wanted, path);
    CHECK(cairn_dir_open(volume, path, &dir), wanted, path);
    CHECK(cairn_file_open(volume, path, O_RDONLY, 0, &file), wanted, path);
}

static void makers(cairn_volume *volume, const char *path, int wanted)
{
    cairn_file *file;
    CHECK(cairn_mkdir(volume, path, 0755), wanted, path);
    CHECK(cairn_mknod(volume, path, S_IFIFO | 0644, 0, 0), wanted, path);
    CHECK(cairn_symlink(volume, "target", path), wanted, path);
    CHECK(cairn_file_open(volume, path, O_RDWR | O_CREAT | O_EXCL, 0644, &file), wanted, path);
}

/* What has a limit on Linux, and what is missing. */
static void of_arguments(cairn_volume *volume)
{
    static char value[65537], target[4097], name[300], path[6001];
    cairn_file *file;
    cairn_metadata found;
    cairn_space space;
    memset(target, 't', sizeof target - 1);
    memset(name, 'n', sizeof name - 1);
    memcpy(name, "user.", 5);
    for (size_t at = 0; at < sizeof path - 1; at++)
        path[at] = at % 2 ? '.' : '/';
    each_call(volume, "", -ENOENT);
    makers(volume, "", -ENOENT);
    each_call(volume, name, -ENAMETOOLONG);
    makers(volume, name, -ENAMETOOLONG);
    CHECK(cairn_stat(volume, path, &found), 0, NULL);
    CHECK(cairn_symlink(volume, target, "/link"), -ENAMETOOLONG, "target");
    CHECK(cairn_setxattr(volume, "/file", name, "v", 1), -ERANGE, "255");
    CHECK(cairn_setxattr(volume, "/file", "", "v", 1), -ERANGE, "255");
    CHECK(cairn_getxattr(volume, "/file", name, value, 1), -ERANGE, "255");
    CHECK(cairn_removexattr(volume, "/file", name), -ERANGE, "255");
    CHECK(cairn_setxattr(volume, "/file", "user.v", value, sizeof value), -E2BIG, "large");
    CHECK(cairn_stat(NULL, "/file", &found), -EINVAL, "volume is NULL");
    CHECK(cairn_stat(volume, NULL, &found), -EINVAL, "path is NULL");
    CHECK(cairn_stat(volume, "/file", NULL), -EINVAL, "metadata is NULL");
    CHECK(cairn_statfs(volume, NULL), -EINVAL, "space is NULL");
    CHECK(cairn_statfs(NULL, &space), -EINVAL, "volume is NULL");
    CHECK(cairn_symlink(volume, NULL, "/link"), -EINVAL, "target is NULL");
    CHECK(cairn_rename(volume, "/file", NULL), -EINVAL, "to is NULL");
    CHECK(cairn_link(volume, NULL, "/link"), -EINVAL, "original is NULL");
    CHECK(cairn_setxattr(volume, "/file", NULL, "v", 1), -EINVAL, "name is NULL");
    CHECK(cairn_setxattr(volume, "/file", "user.v", NULL, 1), -EINVAL, "value is NULL");
    CHECK(cairn_file_open(volume, NULL, O_RDONLY, 0, &file), -EINVAL, "path is NULL");
    CHECK(cairn_file_open(volume, "/file", O_RDONLY, 0, NULL), -EINVAL, "file is NULL");
    CHECK(cairn_open(NULL, CAIRN_READ, NULL, &volume), -EINVAL, "image is NULL");
    CHECK(cairn_mkfs(NULL, "ext4", 0, NULL, 0), -EINVAL, "image is NULL");
    CHECK(cairn_mkfs("image", NULL, 0, NULL, 0), -EINVAL, "format is NULL");
}

static void of_volume(void)
{
    cairn_volume *volume;
    cairn_file *file;
    cairn_metadata found;
    char bytes[8];
    CHECK(cairn_open(in_dir("image"), CAIRN_WRITE, NULL, &volume), 0, NULL);
    CHECK(cairn_file_open(volume, "/file", O_RDWR | O_CREAT, 0644, &file), 0, NULL);
    each_call(volume, "/none", -ENOENT);
    each_call(volume, "/none/below", -ENOENT);
    each_call(volume, "/file/below", -ENOTDIR);
    makers(volume, "/none/below", -ENOENT);
    makers(volume, "/file/below", -ENOTDIR);
    makers(volume, "/file", -EEXIST);
    of_arguments(volume);
    /* Open files name the path that they were opened by. */
    CHECK(cairn_file_truncate(file, UINT64_MAX), -EFBIG, "/file: ");
    CHECK(cairn_file_pwrite(file, "b", 1, UINT64_MAX - 1), -EFBIG, "/file: ");
    CHECK(cairn_file_seek(file, 0, SEEK_DATA), -ENXIO, NULL);
    CHECK(cairn_file_close(file), 0, NULL);
    CHECK(cairn_file_open(volume, "/file", O_RDONLY, 0, &file), 0, NULL);
    CHECK(cairn_file_write(file, "b", 1), -EBADF, "/file: ");
    CHECK(cairn_file_pwrite(file, "b", 1, 0), -EBADF, "/file: ");
    CHECK(cairn_file_truncate(file, 0), -EBADF, "/file: ");
    CHECK(cairn_file_seek(file, -1, SEEK_CUR), -EINVAL, "/file: ");
    CHECK(cairn_file_close(file), 0, NULL);
    CHECK(cairn_file_open(volume, "/file", O_WRONLY, 0, &file), 0, NULL);
    CHECK(cairn_file_read(file, bytes, 8), -EBADF, "/file: ");
    CHECK(cairn_file_pread(file, bytes, 8, 0), -EBADF, "/file: ");
    CHECK(cairn_file_stat(file, &found), 0, NULL);
    CHECK(cairn_file_close(file), 0, NULL);
    CHECK(cairn_close(volume), 0, NULL);
    CHECK(cairn_open(in_dir("image"), CAIRN_READ, NULL, &volume), 0, NULL);
    makers(volume, "/new", -EROFS);
    CHECK(cairn_file_open(volume, "/file", O_WRONLY, 0, &file), -EROFS, "/file");
    CHECK(cairn_close(volume), 0, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: errnos DIR\n");
        return 2;
    }
    base = argv[1];
    of_host();
    of_volume();
    if (!failures)
        puts("all errors have their numbers");
    return failures != 0;
}
