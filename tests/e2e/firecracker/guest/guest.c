/* The smallest guest there can be: no kernel, no root file system, some hundred instructions.

   It says hello, then waits for Ctrl-Alt-Del as a machine does that is asked to end; then it says
   its last words, tells its exit code as /init does, and resets. The agent's id is patched into
   the file by whoever starts it. */

#define COM1 0x3f8
#define KEYBOARD_DATA 0x60
#define KEYBOARD_STATUS 0x64
#define RESET 0xfe

volatile char agent_id[64] = "AGENT-ID-HERE---------------------------------------------------";

static void out(unsigned short port, unsigned char value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static unsigned char in(unsigned short port) {
    unsigned char value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void say(const volatile char *text) {
    while (*text)
        out(COM1, (unsigned char)*text++);
}

void run(void) {
    say("hello ");
    say(agent_id);
    say("\n");
    for (;;) {
        if (in(KEYBOARD_STATUS) & 1) {
            in(KEYBOARD_DATA);
            break;
        }
        for (volatile int pause = 0; pause < 2000; pause++) {
        }
    }
    say("last words\nkici-agent-exit: 3\n");
    for (;;)
        out(KEYBOARD_STATUS, RESET);
}
