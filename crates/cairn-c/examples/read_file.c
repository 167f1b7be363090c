/* Prints a file of a disk image: read_file 'disk.img#2' /etc/hosts */

#include <cairn.h>
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    cairn_volume *volume;
    cairn_file *file;
    char bytes[65536];
    int64_t got = -1;
    if (argc != 3) {
        fprintf(stderr, "usage: read_file IMAGE PATH\n");
        return 2;
    }
    if (cairn_open(argv[1], CAIRN_READ, NULL, &volume) < 0) {
        fprintf(stderr, "%s\n", cairn_last_error());
        return 1;
    }
    if (cairn_file_open(volume, argv[2], O_RDONLY, 0, &file) == 0) {
        while ((got = cairn_file_read(file, bytes, sizeof bytes)) > 0)
            fwrite(bytes, 1, (size_t)got, stdout);
        cairn_file_close(file);
    }
    if (got < 0)
        fprintf(stderr, "%s\n", cairn_last_error());
    cairn_close(volume);
    return got < 0;
}
