/* What the calls promise beside their work: errors, handles, threads: calls IMAGE, which it makes. */

#include "cairn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define THREADS 4

static cairn_volume *volume;

static void expect(int is, const char *what, int line)
{
    if (!is) {
        fprintf(stderr, "line %d: %s: %s\n", line, what, cairn_last_error());
        exit(1);
    }
}

#define EXPECT(what) expect((what) != 0, #what, __LINE__)

static void refusals(const char *image)
{
    cairn_volume *none = volume;
    cairn_file *file;
    cairn_dir *dir;
    cairn_metadata found;
    char bytes[4];
    EXPECT(cairn_open("/does/not/exist", CAIRN_READ, NULL, &none) == -ENOENT && !none);
    EXPECT(strstr(cairn_last_error(), "/does/not/exist"));
    EXPECT(cairn_open(NULL, CAIRN_READ, NULL, &none) == -EINVAL);
    EXPECT(cairn_open(image, CAIRN_READ, NULL, NULL) == -EINVAL);
    EXPECT(cairn_open(image, 77, NULL, &none) == -EINVAL);
    EXPECT(cairn_open(image, CAIRN_WRITE, "no_such_option", &none) == -EINVAL);
    EXPECT(cairn_mkfs(image, "ext4", 0, NULL, 0) == -EEXIST);
    EXPECT(cairn_mkfs(image, "vfat", 0, NULL, CAIRN_OVERWRITE) == -EINVAL);
    EXPECT(cairn_open(image, CAIRN_WRITE, NULL, &volume) == 0);
    EXPECT(!strcmp(cairn_format(volume), "f2fs") && cairn_format(NULL) == NULL);
    EXPECT(cairn_stat(NULL, "/", &found) == -EINVAL);
    EXPECT(cairn_stat(volume, NULL, &found) == -EINVAL);
    EXPECT(cairn_stat(volume, "/", NULL) == -EINVAL);
    EXPECT(cairn_stat(volume, "/no", &found) == -ENOENT && strstr(cairn_last_error(), "/no"));
    EXPECT(cairn_stat(volume, "/", &found) == 0 && S_ISDIR(found.mode));
    EXPECT(cairn_file_open(volume, "/", O_RDONLY, 0, &file) == -EISDIR && !file);
    EXPECT(cairn_file_open(volume, "/f", O_RDONLY | O_DIRECTORY, 0, &file) == -EINVAL);
    EXPECT(cairn_file_open(volume, "/f", O_RDWR | O_CREAT | O_EXCL, 0600, &file) == 0);
    EXPECT(cairn_mkdir(volume, "/f", 0755) == -EEXIST);
    EXPECT(cairn_rmdir(volume, "/f") == -ENOTDIR && cairn_dir_open(volume, "/f", &dir) == -ENOTDIR);
    EXPECT(cairn_file_write(file, NULL, 4) == -EINVAL && cairn_file_write(file, NULL, 0) == 0);
    EXPECT(cairn_file_write(file, "abcd", 4) == 4 && cairn_file_read(file, bytes, 4) == 0);
    EXPECT(cairn_file_read(NULL, bytes, 4) == -EINVAL);
    EXPECT(cairn_file_seek(file, -2, SEEK_END) == 2 && cairn_file_read(file, bytes, 4) == 2);
    EXPECT(bytes[0] == 'c' && bytes[1] == 'd' && cairn_file_pread(file, bytes, 4, 0) == 4);
    EXPECT(cairn_file_seek(file, -9, SEEK_CUR) == -EINVAL);
    EXPECT(cairn_file_seek(file, 0, SEEK_DATA) == 0 && cairn_file_seek(file, 4, SEEK_DATA) == -ENXIO);
    EXPECT(cairn_close(volume) == -EBUSY);
    EXPECT(cairn_file_close(file) == 0 && cairn_file_close(NULL) == 0);
    EXPECT(cairn_file_open(volume, "/f", O_WRONLY | O_APPEND, 0, &file) == 0);
    EXPECT(cairn_file_pwrite(file, "ef", 2, 0) == 2 && cairn_file_read(file, bytes, 4) == -EBADF);
    EXPECT(cairn_file_sync(file, 1) == 0 && cairn_file_sync(file, 0) == 0);
    EXPECT(cairn_file_stat(file, &found) == 0 && found.size == 6 && found.nlink == 1);
    EXPECT(cairn_file_close(file) == 0);
    EXPECT(cairn_truncate(volume, "/f", 3) == 0 && cairn_stat(volume, "f", &found) == 0);
    EXPECT(found.size == 3 && S_ISREG(found.mode) && (found.mode & 07777) == 0600);
    EXPECT(cairn_close(volume) == 0 && cairn_close(NULL) == 0);
    EXPECT(cairn_open(image, CAIRN_READ, NULL, &volume) == 0);
    EXPECT(cairn_unlink(volume, "/f") == -EROFS && cairn_close(volume) == 0);
    EXPECT(cairn_open(image, CAIRN_EPHEMERAL, NULL, &volume) == 0);
    EXPECT(cairn_unlink(volume, "/f") == 0 && cairn_close(volume) == 0);
}

static int stop_at_second(const char *path, const cairn_metadata *found, void *context)
{
    (void)path;
    (void)found;
    return ++*(int *)context == 2 ? 42 : 0;
}

static void names(void)
{
    char bytes[64];
    int visits = 0, entries = 0;
    cairn_dir *dir;
    cairn_dirent entry;
    cairn_space space;
    EXPECT(cairn_symlink(volume, "nowhere", "/l") == 0);
    EXPECT(cairn_readlink(volume, "/l", bytes, 3) == 7 && !memcmp(bytes, "now", 3));
    EXPECT(cairn_readlink(volume, "/f", bytes, 3) == -EINVAL);
    EXPECT(cairn_link(volume, "/f", "/g") == 0 && cairn_rename(volume, "/g", "/h") == 0);
    EXPECT(cairn_setxattr(volume, "/h", "user.n", "value", 5) == 0);
    EXPECT(cairn_getxattr(volume, "/f", "user.n", bytes, 64) == 5 && !memcmp(bytes, "value", 5));
    EXPECT(cairn_getxattr(volume, "/f", "user.n", bytes, 4) == -ERANGE);
    EXPECT(cairn_listxattr(volume, "/f", bytes, 64) == 7 && !memcmp(bytes, "user.n", 7));
    EXPECT(cairn_removexattr(volume, "/f", "user.n") == 0);
    EXPECT(cairn_getxattr(volume, "/f", "user.n", bytes, 64) == -ENODATA);
    EXPECT(cairn_mknod(volume, "/p", S_IFIFO | 0640, 0, 0) == 0);
    EXPECT(cairn_mknod(volume, "/d", S_IFDIR | 0755, 0, 0) == -EINVAL);
    EXPECT(cairn_utimes(volume, "/f", 1, 1000000000, 1, 0) == -EINVAL);
    EXPECT(cairn_walk(volume, "/", stop_at_second, &visits) == 42 && visits == 2);
    EXPECT(cairn_walk(volume, "/", NULL, NULL) == -EINVAL);
    EXPECT(cairn_dir_open(volume, "/", &dir) == 0);
    while (cairn_dir_next(dir, &entry) == 1) {
        EXPECT(entry.name_len == strlen(entry.name) && entry.ino && strcmp(entry.name, ".."));
        entries++;
    }
    EXPECT(cairn_dir_next(dir, &entry) == 0 && entries == 4);
    EXPECT(cairn_close(volume) == -EBUSY && cairn_dir_close(dir) == 0);
    EXPECT(cairn_statfs(volume, &space) == 0 && space.block_size == 4096 && space.name_max == 255);
}

struct watched {
    int calls, enough;
    uint32_t phase, phases;
    pthread_t thread;
};

static int watch(const cairn_progress *progress, void *context)
{
    struct watched *seen = context;
    EXPECT(pthread_equal(seen->thread, pthread_self()) && *progress->what);
    EXPECT(progress->phase >= seen->phase && progress->phase <= progress->phases);
    EXPECT(progress->done <= progress->total);
    seen->phase = progress->phase;
    seen->phases = progress->phases;
    return ++seen->calls == seen->enough;
}

static void checks(const char *image)
{
    struct watched seen = {.thread = pthread_self()};
    EXPECT(cairn_check(image) == 0);
    EXPECT(cairn_check_watched(image, watch, &seen) == 0 && seen.calls);
    EXPECT(seen.phase && seen.phase == seen.phases);
    seen = (struct watched){.thread = pthread_self(), .enough = 1};
    EXPECT(cairn_check_watched(image, watch, &seen) == -ECANCELED && seen.calls == 1);
    EXPECT(strstr(cairn_last_error(), "ended"));
    EXPECT(cairn_check_watched(image, NULL, NULL) == -EINVAL);
    EXPECT(cairn_check_watched("/does/not/exist", watch, &seen) == -ENOENT);
}

static void *work(void *context)
{
    char path[32], bytes[5000], again[5000];
    int number = (int)(size_t)context;
    cairn_file *file;
    memset(bytes, 'a' + number, sizeof bytes);
    EXPECT(!*cairn_last_error());
    for (int round = 0; round < 10; round++) {
        snprintf(path, sizeof path, "/t%d-%d", number, round);
        EXPECT(cairn_file_open(volume, path, O_RDWR | O_CREAT, 0644, &file) == 0);
        EXPECT(cairn_file_write(file, bytes, sizeof bytes) == sizeof bytes);
        EXPECT(cairn_file_sync(file, 0) == 0);
        EXPECT(cairn_file_pread(file, again, sizeof again, 0) == sizeof again);
        EXPECT(!memcmp(bytes, again, sizeof bytes) && cairn_file_close(file) == 0);
        /* Each thread has an error of its own. */
        snprintf(path, sizeof path, "/none-%d", number);
        EXPECT(cairn_unlink(volume, path) == -ENOENT && strstr(cairn_last_error(), path));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc != 2) {
        fprintf(stderr, "usage: calls IMAGE\n");
        return 2;
    }
    EXPECT(!strcmp(cairn_version(), VERSION));
    EXPECT(cairn_mkfs(argv[1], "f2fs", 64 << 20, "calls", 0) == 0);
    refusals(argv[1]);
    EXPECT(cairn_open(argv[1], CAIRN_WRITE, NULL, &volume) == 0);
    names();
    for (size_t number = 0; number < THREADS; number++)
        EXPECT(!pthread_create(&threads[number], NULL, work, (void *)number));
    for (size_t number = 0; number < THREADS; number++)
        EXPECT(!pthread_join(threads[number], NULL));
    EXPECT(cairn_close(volume) == 0);
    checks(argv[1]);
    puts("all calls keep their promises");
    return 0;
}
