/* What a client costs that does nothing but wait, send and receive: every PERIOD_US a request of BYTES to an echo on this machine, whose answer comes 150 us later. It
 * is the bound from below of any client that sends a batch once per period, on the machine on which it runs.
 *
 *   cc -O2 waking_up.c -o waking_up
 *   waking_up timeout|timer [PERIOD_US [BYTES [SECONDS]]]       (1100 1200 4)
 *
 * timeout: each wait has a timeout of its own (epoll_pwait2); timer: a timerfd, set once per request. Real-time priority where it may, as lanes have.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static struct timespec of_ns(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000LL, .tv_nsec = ns % 1000000000LL};
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
}

static int connected(pid_t *echo) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1) || getsockname(listener, (void *)&address, &length)) exit(1);
    *echo = fork();
    if (*echo == 0) {
        char bytes[65536];
        int server = accept(listener, NULL, NULL);
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (read(server, bytes, sizeof bytes) > 0) {
            usleep(150);
            if (write(server, bytes, 64) < 0) break;
        }
        _exit(0);
    }
    if (connect(client, (void *)&address, sizeof address)) exit(1);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return client;
}

static void set_timer(int timer, int64_t at_ns) {
    struct itimerspec setting = {.it_value = of_ns(at_ns)};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL);
}

int main(int count, char **words) {
    int has_timer = count > 1 && !strcmp(words[1], "timer");
    if (count < 2 || (!has_timer && strcmp(words[1], "timeout"))) return fprintf(stderr, "expected timeout or timer\n"), 2;
    int64_t period_ns = 1000LL * (count > 2 ? atoll(words[2]) : 1100);
    size_t bytes = count > 3 ? atoll(words[3]) : 1200;
    double seconds = count > 4 ? atof(words[4]) : 4;
    char buffer[65536] = {0};
    if (period_ns <= 0 || bytes == 0 || bytes > sizeof buffer) return fprintf(stderr, "expected a period above 0 and 1 to 65536 bytes\n"), 2;
    pid_t echo;
    int client = connected(&echo), set = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = client};
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.fd = timer};
    epoll_ctl(set, EPOLL_CTL_ADD, timer, &event);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10});
    double before_s = cpu_s();
    int64_t began_ns = now_ns(), due_ns = began_ns + period_ns, waits = 0;
    if (has_timer) set_timer(timer, due_ns);
    while (now_ns() - began_ns < seconds * 1e9) {
        int64_t left_ns = due_ns - now_ns();
        struct timespec left = of_ns(left_ns > 0 ? left_ns : 0);
        long found = syscall(SYS_epoll_pwait2, set, &event, 1, has_timer ? NULL : &left, NULL, 8);
        waits++;
        if (found == 1 && event.data.fd == client && read(client, buffer, sizeof buffer) <= 0) return 1;
        if (now_ns() < due_ns) continue;
        if (write(client, buffer, bytes) < 0) return 1;
        due_ns += period_ns;
        if (has_timer) set_timer(timer, due_ns);
    }
    printf("%.2f %% of a core, %.0f waits per second\n", 100 * (cpu_s() - before_s) / seconds, waits / seconds);
    kill(echo, SIGKILL);
    return 0;
}
