/* Where Firecracker enters a 64-bit ELF file: long mode, the first GiB mapped one to one. */
    .globl _start
    .section .text.start, "ax"
_start:
    cli
    mov $stack_top, %rsp
    call run

    .bss
    .align 16
    .skip 4096
stack_top:

    .section .note.GNU-stack, "", @progbits
