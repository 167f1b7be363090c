/* Writes a tree by a script, lists and checks it: tree apply IMAGE SCRIPT | list IMAGE | check IMAGE.
 * cairn-testkit's tree/script.rs describes scripts and listings. */

#include "cairn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static cairn_volume *volume;

static int64_t must(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, cairn_last_error(), strerror((int)-result));
        exit(1);
    }
    return result;
}

static void *memory(size_t size)
{
    void *found = malloc(size ? size : 1);
    if (!found) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return found;
}

/* Bytes of hexadecimal digits, with a NUL behind them. */
struct bytes {
    char data[4096];
    size_t len;
};

static void unhex(struct bytes *to, const char *digits)
{
    unsigned byte;
    to->len = 0;
    while (digits[0] != '-' && sscanf(digits, "%2x", &byte) == 1) {
        to->data[to->len++] = (char)byte;
        digits += 2;
    }
    to->data[to->len] = 0;
}

static void write_file(const char *path, uint64_t offset, size_t len, FILE *script)
{
    char *data = (char *)memory(len);
    cairn_file *file;
    if (fread(data, 1, len, script) != len || getc(script) != '\n') {
        fprintf(stderr, "the script ends in a write\n");
        exit(1);
    }
    must(cairn_file_open(volume, path, O_WRONLY, 0, &file), path);
    if (must(cairn_file_pwrite(file, data, len, offset), path) != (int64_t)len) {
        fprintf(stderr, "%s: no more room\n", path);
        exit(1);
    }
    must(cairn_file_close(file), path);
    free(data);
}

static void make_file(const char *path, uint64_t size)
{
    cairn_file *file;
    must(cairn_file_open(volume, path, O_RDWR | O_CREAT | O_TRUNC, 0644, &file), path);
    must(cairn_file_truncate(file, size), path);
    must(cairn_file_close(file), path);
}

static void apply(const char *name)
{
    static char line[16384], a[9000], b[9000], c[9000];
    static struct bytes one, two, three;
    char word[16];
    FILE *script = fopen(name, "rb");
    if (!script) {
        perror(name);
        exit(1);
    }
    while (fgets(line, sizeof line, script)) {
        unsigned long long offset, len;
        unsigned x = 0, y = 0, z = 0;
        long long from, to;
        if (sscanf(line, "%15s %8999s %8999s %8999s", word, a, b, c) < 2)
            continue;
        const char *rest = line + strlen(word) + 1 + strlen(a);
        unhex(&one, a);
        if (!strcmp(word, "mkdir")) {
            must(cairn_mkdir(volume, one.data, 0755), one.data);
        } else if (!strcmp(word, "file") && sscanf(rest, "%llu", &len) == 1) {
            make_file(one.data, len);
        } else if (!strcmp(word, "write") && sscanf(rest, "%llu %llu", &offset, &len) == 2) {
            write_file(one.data, offset, (size_t)len, script);
        } else if (!strcmp(word, "symlink")) {
            unhex(&two, b);
            must(cairn_symlink(volume, one.data, two.data), two.data);
        } else if (!strcmp(word, "link")) {
            unhex(&two, b);
            must(cairn_link(volume, one.data, two.data), two.data);
        } else if (!strcmp(word, "mknod") && sscanf(rest, "%o %u %u", &x, &y, &z) == 3) {
            must(cairn_mknod(volume, one.data, x, y, z), one.data);
        } else if (!strcmp(word, "setxattr")) {
            unhex(&two, b);
            unhex(&three, c);
            must(cairn_setxattr(volume, one.data, two.data, three.data, three.len), one.data);
        } else if (!strcmp(word, "chown") && sscanf(rest, "%u %u", &x, &y) == 2) {
            must(cairn_lchown(volume, one.data, x, y), one.data);
        } else if (!strcmp(word, "chmod") && sscanf(rest, "%o", &x) == 1) {
            must(cairn_chmod(volume, one.data, x), one.data);
        } else if (!strcmp(word, "utimes") &&
                   sscanf(rest, "%lld %u %lld %u", &from, &x, &to, &y) == 4) {
            must(cairn_lutimes(volume, one.data, from, x, to, y), one.data);
        } else {
            fprintf(stderr, "what is %s", line);
            exit(1);
        }
    }
    fclose(script);
    must(cairn_sync(volume), "sync");
}

static uint32_t crc_of(const unsigned char *data, size_t len)
{
    uint32_t crc = 0xffffffff;
    while (len--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static uint32_t contents(const char *path, const cairn_metadata *found)
{
    size_t size = (size_t)found->size, done = 0;
    unsigned char *data = (unsigned char *)memory(size);
    if (S_ISLNK(found->mode)) {
        must(cairn_readlink(volume, path, data, size), path);
    } else {
        cairn_file *file;
        cairn_metadata again;
        must(cairn_file_open(volume, path, O_RDONLY, 0, &file), path);
        must(cairn_file_stat(file, &again), path);
        while (done < size) {
            /* Pieces that end nowhere in particular. */
            size_t piece = size - done < 70001 ? size - done : 70001;
            int64_t got = must(cairn_file_read(file, data + done, piece), path);
            if (!got || again.size != found->size) {
                fprintf(stderr, "%s ends early\n", path);
                exit(1);
            }
            done += (size_t)got;
        }
        if (must(cairn_file_read(file, data, 1), path) != 0) {
            fprintf(stderr, "%s does not end\n", path);
            exit(1);
        }
        must(cairn_file_close(file), path);
    }
    uint32_t crc = crc_of(data, size);
    free(data);
    return crc;
}

struct lines {
    char **line;
    size_t count, room;
};

static void put_hex(FILE *to, const char *data, size_t len)
{
    if (!len)
        putc('-', to);
    for (size_t at = 0; at < len; at++)
        fprintf(to, "%02x", (unsigned char)data[at]);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void put_xattrs(FILE *to, const char *path)
{
    size_t len = (size_t)must(cairn_listxattr(volume, path, NULL, 0), path), count = 0;
    char *names = (char *)memory(len), *sorted[64];
    must(cairn_listxattr(volume, path, names, len), path);
    for (char *name = names; name < names + len && count < 64; name += strlen(name) + 1)
        sorted[count++] = name;
    qsort(sorted, count, sizeof *sorted, by_text);
    for (size_t at = 0; at < count; at++) {
        size_t size = (size_t)must(cairn_getxattr(volume, path, sorted[at], NULL, 0), path);
        char *value = (char *)memory(size);
        must(cairn_getxattr(volume, path, sorted[at], value, size), path);
        putc(' ', to);
        put_hex(to, sorted[at], strlen(sorted[at]));
        putc('=', to);
        put_hex(to, value, size);
        free(value);
    }
    free(names);
}

static int visit(const char *path, const cairn_metadata *found, void *context)
{
    struct lines *lines = (struct lines *)context;
    size_t len;
    int directory = S_ISDIR(found->mode);
    uint32_t crc = S_ISREG(found->mode) || S_ISLNK(found->mode) ? contents(path, found) : 0;
    if (!*path || !strcmp(path, "lost+found"))
        return 0;
    if (lines->count == lines->room) {
        lines->room = lines->room * 2 + 64;
        lines->line = (char **)realloc(lines->line, lines->room * sizeof *lines->line);
    }
    FILE *to = open_memstream(&lines->line[lines->count++], &len);
    put_hex(to, path, strlen(path));
    fprintf(to, " %o %u %u %u %" PRIu64 " %" PRId64 ".%09u %u:%u %08x", found->mode,
            directory ? 0 : found->nlink, found->uid, found->gid, directory ? 0 : found->size,
            found->mtime, found->mtime_nsec, found->rdev_major, found->rdev_minor, crc);
    put_xattrs(to, path);
    fclose(to);
    return 0;
}

static void list(void)
{
    struct lines lines = {NULL, 0, 0};
    must(cairn_walk(volume, "/", visit, &lines), "walk");
    qsort(lines.line, lines.count, sizeof *lines.line, by_text);
    for (size_t at = 0; at < lines.count; at++) {
        puts(lines.line[at]);
        free(lines.line[at]);
    }
    free(lines.line);
}

/* A child of fork() can let the volume go, and nothing else. */
static void leave_to_the_parent(void)
{
    int status;
    struct cairn_dir *directory;
    struct cairn_dirent entry;
    must(cairn_dir_open(volume, "/", &directory), "/");
    pid_t child = fork();
    if (child == 0)
        _exit(cairn_sync(volume) == -EPERM && cairn_dir_next(directory, &entry) == -EPERM &&
              cairn_dir_close(directory) == 0 && cairn_close(volume) == 0 ? 0 : 1);
    must(cairn_dir_close(directory), "/");
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child of fork(): %s\n", cairn_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "apply")) {
        must(cairn_open(argv[2], CAIRN_WRITE, NULL, &volume), argv[2]);
        apply(argv[3]);
    } else if (argc == 3 && !strcmp(argv[1], "list")) {
        must(cairn_open(argv[2], CAIRN_READ, NULL, &volume), argv[2]);
        list();
    } else if (argc == 3 && !strcmp(argv[1], "check")) {
        int64_t defects = must(cairn_check(argv[2]), argv[2]);
        printf("%" PRId64 " defects%s%s\n", defects, defects ? ": " : "",
               defects ? cairn_last_error() : "");
        return 0;
    } else {
        fprintf(stderr, "usage: tree apply IMAGE SCRIPT | list IMAGE | check IMAGE\n");
        return 2;
    }
    leave_to_the_parent();
    must(cairn_close(volume), argv[2]);
    return 0;
}
