// Lets User-Mode Linux run on processors whose registers take more room than it knows, those with AMX.
//
// It saves 2,696 bytes of the extended registers of a process. This machine's kernel wants all of them back, some 11,000
// bytes, or refuses. So `dev/uml` loads this before it: the bytes that it does not know stay as they are.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

static long (*next)(int request, pid_t process, void *address, void *data);
// Not on the stack, which is small. User-Mode Linux has one processor.
static char all_registers[1 << 16];

__attribute__((constructor)) static void find_next(void)
{
	next = (long (*)(int, pid_t, void *, void *))dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	pid_t process = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		struct iovec *some = data;
		struct iovec all = { all_registers, sizeof all_registers };
		if (next(PTRACE_GETREGSET, process, address, &all) == 0 && all.iov_len > some->iov_len) {
			memcpy(all.iov_base, some->iov_base, some->iov_len);
			return next(request, process, address, &all);
		}
	}
	return next(request, process, address, data);
}
