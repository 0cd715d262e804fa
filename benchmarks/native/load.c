/*
 * load - a load client for OpenAI-compatible chat endpoints: closed loop, open loop, and streams.
 *
 *   make bin/load
 *   bin/load -p PORT [options]       prints one line of JSON
 *     -c N      connections (closed loop: in flight at once; open loop: the most at once)   [1]
 *     -t SEC    duration                                                                     [3]
 *     -n N      stop after N requests instead (and exits when they are done)
 *     -r RATE   open loop: RATE requests/s whatever the answers do; latency counts from the
 *               time a request was due, so a stalled server cannot hide its queue
 *     -s K      stream: K content chunks a request (max_tokens=K)
 *     -g MS     spread the first requests of the connections over MS ms (streams: one pace interval)
 *     -b BYTES  about how large the request body is                                          [250]
 *     -m MODEL  model name [stub]     -H "Name: value" one more header     -u PATH  [/v1/chat/completions]
 *     -x N      leave (close the connection) within every Nth request: a stream after its first content chunk, a
 *               plain request right after it was sent                                        [never]
 *     -e        errors are expected: they are counted, but the exit status stays 0
 *     -U        stream_options.include_usage      -a KEY  bearer token [sk-1234]
 *
 * Non-stream: rps and latency p50/p90/p99/max (us).  Stream: also ttfb (request sent -> first byte of
 * the body), chunks/s, and the one-way latency of every chunk from stub_upstream's send (the "@" +
 * 19 digits in it) to this client's recv.  Anything but a whole 200 answer with the chunks asked for
 * counts in "errors".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct samples { float *v; size_t n, cap; };
struct conn {
    int fd;
    bool busy, body_seen, leaves;
    char head[8192];
    size_t head_n;
    int state; /* 0 head, 1 sized body, 2 chunk-size line, 3 chunk data, 4 chunk CRLF, 5 trailer */
    long left;
    char line[64];
    int line_n, status;
    uint64_t due, sent;
    int mark_n; /* digits of a timestamp read so far, -1: none begun */
    uint64_t mark;
    uint32_t chunks;
};

static struct samples lat, ttfb, oneway;
static uint64_t done, errors, left_early, chunks_total, bytes_in, reconnects;
static char *req;
static size_t req_n;
static int ep, port = 9000, stream_k, leave_every, errors_expected;
static struct sockaddr_in addr;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void add(struct samples *s, double us)
{
    if (s->n == s->cap) s->v = realloc(s->v, (s->cap = s->cap ? s->cap * 2 : 65536) * sizeof(float));
    s->v[s->n++] = us;
}

static int cmp(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, struct samples *s)
{
    if (!s->n) return;
    qsort(s->v, s->n, sizeof(float), cmp);
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
#define Q(q) s->v[(size_t)((s->n - 1) * (q))]
    printf(",\"%s_us\":{\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, sum / s->n, Q(.5), Q(.9), Q(.99), Q(1));
}

static void dial(struct conn *c)
{
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&addr, sizeof addr)) { perror("connect"); exit(1); }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}

static void redial(struct conn *c)
{
    close(c->fd);
    reconnects++;
    dial(c);
}

static void issue(struct conn *c, uint64_t due)
{
    c->busy = true;
    c->body_seen = false;
    c->head_n = 0;
    c->state = 0;
    c->mark_n = -1;
    c->chunks = 0;
    c->sent = now_ns();
    c->due = due ? due : c->sent;
    for (size_t off = 0; off < req_n;) { /* blocking send: bodies are small next to the socket buffer */
        ssize_t r = send(c->fd, req + off, req_n - off, MSG_NOSIGNAL);
        if (r < 0) { redial(c); off = 0; continue; }
        off += r;
    }
    static uint64_t n;
    c->leaves = leave_every && ++n % leave_every == 0;
}

/* The client goes away in the middle of its request. */
static void leave(struct conn *c)
{
    left_early++;
    done++;
    c->busy = false;
    redial(c);
}

static void finish(struct conn *c, uint64_t now)
{
    if (c->status != 200 || (stream_k && c->chunks != (uint32_t)stream_k)) {
        if (!errors && !errors_expected) fprintf(stderr, "load: first error: status %d, %u chunks; head: %.200s\n", c->status, c->chunks, c->head);
        errors++;
    } else add(&lat, (now - c->due) / 1e3);
    c->busy = false;
    done++;
}

static void payload(struct conn *c, const char *p, size_t n, uint64_t now)
{
    if (!c->body_seen) {
        c->body_seen = true;
        add(&ttfb, (now - c->sent) / 1e3);
    }
    if (!stream_k) return;
    const char *lim = p + n;
    while (p < lim) {
        if (c->mark_n < 0) {
            p = memchr(p, '@', lim - p);
            if (!p) return;
            p++;
            c->mark_n = 0;
            c->mark = 0;
        }
        while (p < lim && c->mark_n < 19 && *p >= '0' && *p <= '9') {
            c->mark = c->mark * 10 + (*p++ - '0');
            c->mark_n++;
        }
        if (c->mark_n == 19) {
            c->mark_n = -1;
            c->chunks++;
            chunks_total++;
            add(&oneway, ((double)now - (double)c->mark) / 1e3);
        } else if (p < lim) c->mark_n = -1; /* another "@" */
    }
}

static void parse(struct conn *c, char *p, size_t n, uint64_t now)
{
    char *lim = p + n;
    while (p < lim && c->busy) {
        size_t k;
        switch (c->state) {
        case 0:
            while (p < lim && c->head_n < sizeof c->head - 1) {
                c->head[c->head_n++] = *p++;
                if (c->head_n >= 4 && !memcmp(c->head + c->head_n - 4, "\r\n\r\n", 4)) {
                    c->head[c->head_n] = 0;
                    c->status = atoi(c->head + 9);
                    char *cl = strcasestr(c->head, "\r\ncontent-length:"), *te = strcasestr(c->head, "\r\ntransfer-encoding: chunked");
                    c->left = cl ? atol(cl + 17) : 0;
                    c->line_n = 0;
                    c->state = te ? 2 : 1;
                    if (!te && !c->left) finish(c, now);
                    break;
                }
            }
            break;
        case 1:
        case 3:
            k = lim - p < c->left ? lim - p : c->left;
            payload(c, p, k, now);
            p += k;
            c->left -= k;
            if (!c->left) {
                if (c->state == 1) finish(c, now);
                else { c->state = 4; c->left = 2; }
            }
            break;
        case 4:
            p++;
            if (!--c->left) { c->state = 2; c->line_n = 0; }
            break;
        case 2:
        case 5:
            while (p < lim) {
                char ch = *p++;
                if (ch != '\n') { if (c->line_n < 60) c->line[c->line_n++] = ch; continue; }
                c->line[c->line_n] = 0;
                if (c->state == 5) {
                    if (c->line_n <= 1) finish(c, now);
                } else {
                    c->left = strtol(c->line, NULL, 16);
                    c->state = c->left ? 3 : 5;
                }
                c->line_n = 0;
                break;
            }
            break;
        }
    }
}

int main(int argc, char **argv)
{
    int conns = 1, o, body_n = 250, usage = 0;
    long n_max = 0;
    double secs = 3, rate = 0, spread_ms = 0;
    const char *model = "stub", *extra = NULL, *key = "sk-1234", *path = "/v1/chat/completions";
    while ((o = getopt(argc, argv, "p:c:t:n:r:s:g:b:m:H:u:a:x:eU")) != -1) switch (o) {
        case 'p': port = atoi(optarg); break;
        case 'c': conns = atoi(optarg); break;
        case 't': secs = atof(optarg); break;
        case 'n': n_max = atol(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 's': stream_k = atoi(optarg); break;
        case 'g': spread_ms = atof(optarg); break;
        case 'b': body_n = atoi(optarg); break;
        case 'm': model = optarg; break;
        case 'H': extra = optarg; break;
        case 'u': path = optarg; break;
        case 'a': key = optarg; break;
        case 'x': leave_every = atoi(optarg); break;
        case 'e': errors_expected = 1; break;
        case 'U': usage = 1; break;
        default: return 2;
    }
    char *body = malloc(body_n + 1024), *pad = malloc(body_n + 1);
    int fixed = 170, padn = body_n > fixed ? body_n - fixed : 8;
    for (int i = 0; i < padn; i++) pad[i] = "lorem ipsum dolor "[i % 18];
    pad[padn] = 0;
    int bn = sprintf(body, "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},{\"role\":\"user\","
                     "\"content\":\"%s\"}],\"temperature\":0.7,\"max_tokens\":%d,\"stream\":%s%s}", model, pad, stream_k ? stream_k : 100,
                     stream_k ? "true" : "false", usage ? ",\"stream_options\":{\"include_usage\":true}" : "");
    req = malloc(bn + 2048);
    req_n = sprintf(req, "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nuser-agent: load/1\r\naccept: */*\r\ncontent-type: application/json\r\n"
                    "authorization: Bearer %s\r\n%s%scontent-length: %d\r\n\r\n%s", path, port, key, extra ? extra : "", extra ? "\r\n" : "", bn, body);
    addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    prctl(PR_SET_TIMERSLACK, 1000ul); /* wake on time: the default lets timers run 50 us late */
    ep = epoll_create1(0);
    struct conn *cs = calloc(conns, sizeof *cs), **idle = malloc(conns * sizeof *idle);
    int n_idle = 0;
    for (int i = 0; i < conns; i++) dial(&cs[i]);
    uint64_t t0 = now_ns(), end = t0 + (uint64_t)(secs * 1e9), last = t0;
    uint64_t issued = 0, arrivals = 0, started = 0;
    double gap = rate > 0 ? 1e9 / rate : 0;
    for (int i = conns - 1; i >= 0; i--) idle[n_idle++] = &cs[i];
    struct epoll_event ev[256];
    static char buf[262144];
    uint64_t drain_until = 0;
    for (;;) {
        uint64_t now = now_ns();
        bool over = n_max ? issued >= (uint64_t)n_max : now >= end;
        struct timespec ts = {0, 50000000};
        if (!over) {
            if (rate > 0) { /* open loop */
                while (n_idle && issued <= (uint64_t)((now - t0) / gap) && (!n_max || issued < (uint64_t)n_max)) {
                    issue(idle[--n_idle], t0 + (uint64_t)(issued * gap));
                    issued++;
                }
                arrivals = (now - t0) / gap;
                uint64_t next = t0 + (uint64_t)((arrivals + 1) * gap);
                now = now_ns();
                ts.tv_nsec = next > now ? (next - now > 50000000 ? 50000000 : next - now) : 0;
            } else { /* closed loop, first requests spread */
                while (n_idle && (!n_max || issued < (uint64_t)n_max)) {
                    if (started < (uint64_t)conns && spread_ms > 0) {
                        uint64_t at = t0 + (uint64_t)(started * spread_ms * 1e6 / conns);
                        if (at > now) { ts.tv_nsec = at - now > 50000000 ? 50000000 : at - now; break; }
                    }
                    struct conn *c = idle[--n_idle];
                    issue(c, 0);
                    issued++;
                    started++;
                    if (c->leaves && !stream_k) {
                        leave(c);
                        idle[n_idle++] = c;
                    }
                }
            }
        } else {
            if (!drain_until) drain_until = now + (stream_k ? 20000000000ull : 5000000000ull);
            if (n_idle == conns || now > drain_until) break;
        }
        int k = epoll_pwait2(ep, ev, 256, &ts, NULL);
        for (int i = 0; i < k; i++) {
            struct conn *c = ev[i].data.ptr;
            ssize_t r = recv(c->fd, buf, sizeof buf, MSG_DONTWAIT);
            uint64_t t = now_ns();
            if (r < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (r <= 0) {
                bool was = c->busy;
                if (was) { errors++; done++; c->busy = false; }
                redial(c);
                if (was) idle[n_idle++] = c;
                continue;
            }
            bytes_in += r;
            bool was = c->busy;
            parse(c, buf, r, t);
            if (c->busy && c->leaves && c->chunks) leave(c);
            if (was && !c->busy) {
                idle[n_idle++] = c;
                last = t;
                if (!c->leaves && strcasestr(c->head, "\r\nconnection: close")) redial(c);
            }
        }
    }
    double wall = (last - t0) / 1e9;
    printf("{\"conns\":%d,\"wall_s\":%.3f,\"requests\":%llu,\"errors\":%llu,\"left\":%llu,\"unfinished\":%d,\"reconnects\":%llu,\"rps\":%.1f,\"body_bytes\":%d",
           conns, wall, (unsigned long long)done, (unsigned long long)errors,
           (unsigned long long)left_early, conns - n_idle, (unsigned long long)reconnects, done / wall, bn);
    if (rate > 0) printf(",\"rate\":%.1f", rate);
    show("lat", &lat);
    if (stream_k) {
        printf(",\"chunks\":%llu,\"chunks_per_s\":%.0f,\"MBps\":%.1f", (unsigned long long)chunks_total, chunks_total / wall, bytes_in / wall / 1e6);
        show("ttfb", &ttfb);
        show("chunk_oneway", &oneway);
    }
    printf("}\n");
    return errors && !errors_expected ? 1 : 0;
}
