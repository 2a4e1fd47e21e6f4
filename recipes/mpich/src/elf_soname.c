/* SPDX-License-Identifier: BSD-3-Clause
 * Everything in the file is checked against the file's size before it is followed: the file is the site's, not ours. */
#include "elf_soname.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "no ELF machine known for this architecture"
#endif

struct image {
    const unsigned char *bytes;
    size_t size;
};

static const void *part(const struct image *image, uint64_t offset, uint64_t length) {
    if (offset > image->size || length > image->size - offset) return NULL;
    return image->bytes + offset;
}

/* The bytes at a virtual address, by the program headers, as the loader sees them. */
static const void *at_address(const struct image *image, const Elf64_Phdr *headers, unsigned count, uint64_t address,
                              uint64_t length) {
    for (unsigned i = 0; i < count; i++) {
        if (headers[i].p_type != PT_LOAD || address < headers[i].p_vaddr) continue;
        uint64_t within = address - headers[i].p_vaddr;
        if (within < headers[i].p_filesz && length <= headers[i].p_filesz - within)
            return part(image, headers[i].p_offset + within, length);
    }
    return NULL;
}

static const char *from_dynamic(const struct image *image, const Elf64_Phdr *headers, unsigned count,
                                const Elf64_Phdr *dynamic, char *soname, size_t size) {
    const Elf64_Dyn *entries = part(image, dynamic->p_offset, dynamic->p_filesz);
    if (entries == NULL || (uintptr_t)entries % _Alignof(Elf64_Dyn) != 0) return "is cut short or damaged";
    uint64_t table = 0, table_size = 0, name = UINT64_MAX;
    for (size_t i = 0; i < dynamic->p_filesz / sizeof *entries && entries[i].d_tag != DT_NULL; i++) {
        if (entries[i].d_tag == DT_STRTAB) table = entries[i].d_un.d_ptr;
        if (entries[i].d_tag == DT_STRSZ) table_size = entries[i].d_un.d_val;
        if (entries[i].d_tag == DT_SONAME) name = entries[i].d_un.d_val;
    }
    if (name == UINT64_MAX) return "has no SONAME";
    const char *strings = at_address(image, headers, count, table, table_size);
    if (strings == NULL || name >= table_size) return "is cut short or damaged";
    const char *end = memchr(strings + name, '\0', table_size - name);
    if (end == NULL || (size_t)(end - strings) - name >= size) return "is cut short or damaged";
    memcpy(soname, strings + name, (size_t)(end - strings) - name + 1);
    return NULL;
}

static const char *from_image(const struct image *image, char *soname, size_t size) {
    const Elf64_Ehdr *head = part(image, 0, sizeof *head);
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0) return "is no ELF file";
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_machine != OWN_MACHINE || head->e_type != ET_DYN)
        return "is no shared library of this architecture";
    const Elf64_Phdr *headers = part(image, head->e_phoff, (uint64_t)head->e_phnum * sizeof *headers);
    if (headers == NULL || (uintptr_t)headers % _Alignof(Elf64_Phdr) != 0) return "is cut short or damaged";
    for (unsigned i = 0; i < head->e_phnum; i++)
        if (headers[i].p_type == PT_DYNAMIC)
            return from_dynamic(image, headers, head->e_phnum, &headers[i], soname, size);
    return "has no SONAME";
}

const char *read_soname(const char *path, char *soname, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return "cannot be opened";
    struct stat status;
    const char *reason = "cannot be read";
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        struct image image = {.size = (size_t)status.st_size};
        void *bytes = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes != MAP_FAILED) {
            image.bytes = bytes;
            reason = from_image(&image, soname, size);
            munmap(bytes, image.size);
        }
    }
    close(file);
    return reason;
}
