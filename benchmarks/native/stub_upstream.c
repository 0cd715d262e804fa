/*
 * stub_upstream - a very fast fake vLLM OpenAI-compatible server, for measuring proxies.
 *
 *   make bin/stub_upstream
 *   bin/stub_upstream [-p port]... [-d delay_us] [-n default_chunks] [-m model]     several ports: several replicas
 *
 * One thread, epoll, HTTP/1.1 keep-alive.  Endpoints:
 *   POST /v1/chat/completions   "stream":false -> one fixed JSON body (~600 B, Content-Length)
 *                               "stream":true  -> SSE over chunked encoding: one role chunk, N content
 *                               chunks of ~210 B, one finish chunk, [a usage chunk when
 *                               stream_options.include_usage], then [DONE].
 *                               N is the request's max_tokens (or max_completion_tokens, or -n).
 *   POST /v1/completions        one fixed JSON body (never a stream)
 *   GET /v1/models, /health, /metrics (a few vllm:* gauges)
 *   GET /stub/set?delay_us=N    change the inter-chunk delay while running (0 = as fast as possible)
 *   GET /stub/set?fail_every=N  every Nth stream ends in an error event after its first content chunk, and every
 *                               Nth plain answer is a 500 (0 = never)
 *   GET /stub/stats             {"requests":..,"streams":..,"chunks":..,"conns":..,"running":..,"failed":..}
 *
 * Each content chunk carries its own send time as "@" + 19 digits of CLOCK_MONOTONIC ns, so that a
 * client on the same machine gets the one-way latency of every chunk, through any proxy, even one
 * that parses and re-serialises the chunk.  Every chunk is one send(): with a delay each reaches the
 * proxy alone, as from a real engine; at delay 0 the kernel coalesces them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
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

#define OUT_CAP 4096
#define BURST 16 /* chunks sent per stream per turn at delay 0 */

struct conn {
    int fd;
    char *in;
    size_t in_len, in_cap;
    char out[OUT_CAP];
    size_t out_off, out_len;
    bool streaming, include_usage, fails, want_out, queued, dead;
    uint32_t chunks_left, phase; /* phase: 0 role, 1 content, 2 finish, 3 usage, 4 done, 5 ended, 6 error */
    uint64_t deadline;
    struct conn *qnext;
};

static int ep;
static uint64_t delay_ns;
static uint32_t default_chunks = 100;
static const char *model = "stub";
static struct conn *qhead, *qtail; /* FIFO of streams by deadline: all share one delay, so it is sorted */
static uint64_t n_requests, n_streams, n_chunks, n_conns, n_running, n_failed, n_answers, fail_every;
static char json_resp[2048], text_resp[2048];
static size_t json_resp_len, text_resp_len;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void enqueue(struct conn *c)
{
    if (c->queued) return;
    c->queued = true;
    c->qnext = NULL;
    if (qtail) qtail->qnext = c; else qhead = c;
    qtail = c;
}

static void watch(struct conn *c, bool out)
{
    if (c->want_out == out) return;
    c->want_out = out;
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

static void conn_close(struct conn *c)
{
    if (c->dead) return;
    close(c->fd);
    free(c->in);
    if (c->streaming) n_running--;
    c->in = NULL;
    c->dead = true;
    n_conns--;
    if (!c->queued) enqueue(c); /* freed when it leaves the queue, so no event can meet a freed one */
}

/* Sends what is pending; true when all went out. */
static bool flush_out(struct conn *c)
{
    while (c->out_off < c->out_len) {
        ssize_t r = send(c->fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) { watch(c, true); return false; }
            conn_close(c);
            return false;
        }
        c->out_off += r;
    }
    c->out_off = c->out_len = 0;
    if (c->want_out) watch(c, false);
    return true;
}

static void respond(struct conn *c, const char *status, const char *type, const char *body, size_t n)
{
    int h = snprintf(c->out, OUT_CAP, "HTTP/1.1 %s\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
                     "content-length: %zu\r\ncontent-type: %s\r\n\r\n", status, n, type);
    memcpy(c->out + h, body, n);
    c->out_len = h + n;
    c->out_off = 0;
    flush_out(c);
}

static void put_event(struct conn *c, const char *data, int n)
{ /* one SSE event as one HTTP chunk */
    c->out_len += sprintf(c->out + c->out_len, "%x\r\ndata: %.*s\n\n\r\n", n + 8, n, data);
}

#define HEAD "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\"," \
             "\"created\":1700000000,\"model\":\"%s\","

/* Puts the stream's next event in c->out.  False when the stream has ended. */
static bool next_event(struct conn *c)
{
    char b[1024];
    int n = 0;
    if (c->phase == 1 && c->chunks_left == 0) c->phase = 2;
    if (c->phase == 3 && !c->include_usage) c->phase = 4;
    switch (c->phase) {
    case 0:
        n = snprintf(b, sizeof b, HEAD "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                     "\"logprobs\":null,\"finish_reason\":null}]}", model);
        c->phase = 1;
        break;
    case 1:
        n = snprintf(b, sizeof b, HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" @%019llu\"},"
                     "\"logprobs\":null,\"finish_reason\":null}]}", model, (unsigned long long)now_ns());
        c->chunks_left--;
        n_chunks++;
        if (c->fails) c->phase = 6;
        break;
    case 6:
        n = snprintf(b, sizeof b, "{\"error\":{\"message\":\"EngineCore encountered an issue.\",\"type\":\"InternalServerError\","
                     "\"param\":null,\"code\":500}}");
        c->phase = 4;
        break;
    case 2:
        n = snprintf(b, sizeof b, HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,"
                     "\"finish_reason\":\"stop\",\"stop_reason\":null}]}", model);
        c->phase = 3;
        break;
    case 3:
        n = snprintf(b, sizeof b, HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"total_tokens\":120,"
                     "\"completion_tokens\":100}}", model);
        c->phase = 4;
        break;
    case 4:
        put_event(c, "[DONE]", 6);
        c->out_len += sprintf(c->out + c->out_len, "0\r\n\r\n");
        c->phase = 5;
        return true;
    default:
        return false;
    }
    put_event(c, b, n);
    return true;
}

static void serve_input(struct conn *c);

static void end_stream(struct conn *c)
{
    c->streaming = false;
    n_running--;
    serve_input(c); /* a pipelined request, if any */
}

/* Sends what is due on one stream, then queues it again or ends it. */
static void pump(struct conn *c, uint64_t now)
{
    for (int i = 0; i < BURST; i++) {
        if (c->out_len == 0) next_event(c);
        if (!flush_out(c)) return; /* EPOLLOUT comes back here, or it is closed */
        if (c->phase == 5) {
            end_stream(c);
            return;
        }
        if (c->phase == 1 && delay_ns && c->chunks_left) {
            c->deadline += delay_ns;
            if (c->deadline > now) break;
        }
    }
    enqueue(c);
}

static void start_stream(struct conn *c, uint32_t chunks, bool usage, bool fails)
{
    n_streams++;
    n_running++;
    c->fails = fails;
    c->streaming = true;
    c->include_usage = usage;
    c->chunks_left = chunks;
    c->phase = 0;
    c->out_off = 0;
    c->out_len = sprintf(c->out, "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
                         "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
    next_event(c); /* head and role chunk leave together */
    c->deadline = now_ns();
    if (flush_out(c)) {
        c->deadline += delay_ns;
        enqueue(c);
    }
}

static long find_number(const char *b, size_t n, const char *key, long dflt)
{
    const char *p = memmem(b, n, key, strlen(key));
    if (!p) return dflt;
    p += strlen(key);
    while (p < b + n && (*p == ' ' || *p == ':')) p++;
    return (p < b + n && *p >= '0' && *p <= '9') ? strtol(p, NULL, 10) : dflt;
}

static void handle(struct conn *c, const char *head, const char *body, size_t n)
{
    n_requests++;
    const char *path = strchr(head, ' ');
    path = path ? path + 1 : "";
    if (!strncmp(head, "POST /v1/completions", 20)) {
        memcpy(c->out, text_resp, text_resp_len);
        c->out_off = 0;
        c->out_len = text_resp_len;
        flush_out(c);
        return;
    }
    if (!strncmp(head, "POST /v1/chat/completions", 25)) {
        bool fails = fail_every && ++n_answers % fail_every == 0;
        n_failed += fails;
        const char *s = memmem(body, n, "\"stream\":", 9);
        while (s && (s += 9) < body + n && *s == ' ') {}
        if (s && !strncmp(s, "true", 4)) {
            long k = find_number(body, n, "\"max_tokens\"", find_number(body, n, "\"max_completion_tokens\"", default_chunks));
            bool usage = memmem(body, n, "\"include_usage\":true", 20) || memmem(body, n, "\"include_usage\": true", 21);
            start_stream(c, k, usage, fails);
        } else if (fails) {
            static const char e[] = "{\"error\":{\"message\":\"EngineCore encountered an issue.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}";
            respond(c, "500 Internal Server Error", "application/json", e, sizeof e - 1);
        } else {
            memcpy(c->out, json_resp, json_resp_len);
            c->out_off = 0;
            c->out_len = json_resp_len;
            flush_out(c);
        }
        return;
    }
    char b[1500];
    int k = 0;
    const char *type = "application/json";
    if (!strncmp(path, "/v1/models", 10)) {
        k = sprintf(b, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"vllm\","
                    "\"root\":\"%s\",\"parent\":null,\"max_model_len\":32768,\"permission\":[]}]}", model, model);
    } else if (!strncmp(path, "/health", 7)) {
        /* 200, empty, as vLLM */
    } else if (!strncmp(path, "/metrics", 8)) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        k = sprintf(b, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"%s\"} %llu.0\n"
                    "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"%s\"} 0.0\n"
                    "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"%s\"} 0.1\n",
                    model, (unsigned long long)n_running, model, model);
    } else if (!strncmp(path, "/stub/set?fail_every=", 21)) {
        fail_every = strtoull(path + 21, NULL, 10);
        k = sprintf(b, "{\"fail_every\":%llu}", (unsigned long long)fail_every);
    } else if (!strncmp(path, "/stub/set?delay_us=", 19)) {
        delay_ns = strtoull(path + 19, NULL, 10) * 1000;
        k = sprintf(b, "{\"delay_us\":%llu}", (unsigned long long)(delay_ns / 1000));
    } else if (!strncmp(path, "/stub/stats", 11)) {
        k = sprintf(b, "{\"requests\":%llu,\"streams\":%llu,\"chunks\":%llu,\"conns\":%llu,\"running\":%llu,"
                    "\"failed\":%llu}", (unsigned long long)n_requests, (unsigned long long)n_streams, (unsigned long long)n_chunks,
                    (unsigned long long)n_conns, (unsigned long long)n_running, (unsigned long long)n_failed);
    } else {
        respond(c, "404 Not Found", type, "{\"detail\":\"Not Found\"}", 22);
        return;
    }
    respond(c, "200 OK", type, b, k);
}

static const char *header(const char *head, const char *name)
{ /* name as "\r\nname:" */
    const char *p = strcasestr(head, name);
    if (!p) return NULL;
    p += strlen(name);
    while (*p == ' ') p++;
    return p;
}

/* Serves the whole requests in c->in, one at a time (the next waits until a stream ends). */
static void serve_input(struct conn *c)
{
    while (!c->dead && !c->streaming && c->out_len == 0 && c->in_len) {
        char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
        if (!end) return;
        char saved = end[2];
        end[2] = 0; /* the headers as one C string, last line with its \r\n */
        const char *cl = header(c->in, "\r\ncontent-length:"), *te = header(c->in, "\r\ntransfer-encoding:");
        bool expect = header(c->in, "\r\nexpect:") != NULL;
        size_t hlen = end + 4 - c->in, blen = cl ? strtoul(cl, NULL, 10) : 0, used;
        bool chunked = te && !strncasecmp(te, "chunked", 7);
        end[2] = saved;
        char *body = c->in + hlen;
        if (chunked) { /* decode in place; wait until it is all here */
            char *p = body, *lim = c->in + c->in_len, *w = body;
            size_t total = 0;
            bool whole = false;
            for (;;) { /* first pass: is it whole? */
                char *nl = memchr(p, '\n', lim - p);
                if (!nl) break;
                size_t sz = strtoul(p, NULL, 16);
                if ((size_t)(lim - nl - 1) < sz + 2) break;
                p = nl + 1 + sz + 2;
                total += sz;
                if (!sz) { whole = true; break; }
            }
            if (!whole) return;
            used = p - c->in;
            for (p = body;;) {
                char *nl = memchr(p, '\n', lim - p);
                size_t sz = strtoul(p, NULL, 16);
                if (!sz) break;
                p = nl + 1 + sz + 2;
                memmove(w, nl + 1, sz);
                w += sz;
            }
            blen = total;
        } else {
            if (c->in_len < hlen + blen) {
                if (expect && c->in_len == hlen) send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
                return;
            }
            used = hlen + blen;
        }
        handle(c, c->in, body, blen);
        if (c->dead) return;
        memmove(c->in, c->in + used, c->in_len - used);
        c->in_len -= used;
    }
}

static void readable(struct conn *c)
{
    for (;;) {
        if (c->in_cap - c->in_len < 4096) {
            c->in_cap = c->in_cap ? c->in_cap * 2 : 8192;
            c->in = realloc(c->in, c->in_cap + 1);
        }
        size_t room = c->in_cap - c->in_len;
        ssize_t r = recv(c->fd, c->in + c->in_len, room, 0);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0 && errno == EAGAIN) break;
        if (r <= 0) { conn_close(c); return; }
        c->in_len += r;
        c->in[c->in_len] = 0;
        if ((size_t)r < room) break;
    }
    serve_input(c);
}

int main(int argc, char **argv)
{
    int ports[64] = {9000}, listeners[64], n_ports = 0, o, one = 1;
    while ((o = getopt(argc, argv, "p:d:n:m:")) != -1) switch (o) {
        case 'p': if (n_ports == 64) return 2; ports[n_ports++] = atoi(optarg); break;
        case 'd': delay_ns = strtoull(optarg, NULL, 10) * 1000; break;
        case 'n': default_chunks = atoi(optarg); break;
        case 'm': model = optarg; break;
        default: return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    char b[1500];
    int n = snprintf(b, sizeof b,
        "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"%s\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over the lazy dog, and "
        "then does so once more because a benchmark needs some text to carry around.\",\"refusal\":null,\"annotations\":null,"
        "\"audio\":null,\"function_call\":null,\"tool_calls\":[],\"reasoning\":null},\"logprobs\":null,\"finish_reason\":\"stop\","
        "\"stop_reason\":null,\"token_ids\":null}],\"service_tier\":null,\"system_fingerprint\":null,\"usage\":{\"prompt_tokens\":20,"
        "\"total_tokens\":43,\"completion_tokens\":23,\"prompt_tokens_details\":null},\"prompt_logprobs\":null}", model);
    json_resp_len = snprintf(json_resp, sizeof json_resp, "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
                             "content-length: %d\r\ncontent-type: application/json\r\n\r\n%s", n, b);
    n = snprintf(b, sizeof b, "{\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
                 "\"model\":\"%s\",\"choices\":[{\"index\":0,\"text\":\" fox\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}],"
                 "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":4,\"completion_tokens\":1,\"prompt_tokens_details\":null}}", model);
    text_resp_len = snprintf(text_resp, sizeof text_resp, "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
                             "content-length: %d\r\ncontent-type: application/json\r\n\r\n%s", n, b);
    prctl(PR_SET_TIMERSLACK, 1000ul); /* wake on time: the default lets timers run 50 us late */
    ep = epoll_create1(0);
    struct epoll_event e, ev[512];
    if (!n_ports) n_ports = 1;
    for (int i = 0; i < n_ports; i++) {
        listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        setsockopt(listeners[i], SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(ports[i]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (bind(listeners[i], (void *)&a, sizeof a) || listen(listeners[i], 4096)) { perror("bind/listen"); return 1; }
        e = (struct epoll_event){.events = EPOLLIN, .data.ptr = &listeners[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, listeners[i], &e);
        fprintf(stderr, "stub_upstream on 127.0.0.1:%d\n", ports[i]);
    }
    for (;;) {
        struct timespec ts = {0}, *tp = NULL; /* no stream: wait without end */
        if (qhead) {
            uint64_t now = now_ns();
            if (!qhead->dead && qhead->deadline > now) {
                ts.tv_sec = (qhead->deadline - now) / 1000000000ull;
                ts.tv_nsec = (qhead->deadline - now) % 1000000000ull;
            }
            tp = &ts;
        }
        int k = epoll_pwait2(ep, ev, 512, tp, NULL);
        for (int i = 0; i < k; i++) {
            struct conn *c = ev[i].data.ptr;
            int *listener = ev[i].data.ptr;
            if (listener >= listeners && listener < listeners + n_ports) {
                int fd;
                while ((fd = accept4(*listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    c = calloc(1, sizeof *c);
                    c->fd = fd;
                    n_conns++;
                    e = (struct epoll_event){.events = EPOLLIN, .data.ptr = c};
                    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
                }
                continue;
            }
            if (c->dead) continue;
            if (ev[i].events & EPOLLOUT) {
                if (flush_out(c)) {
                    if (!c->streaming) serve_input(c);
                    else if (c->phase == 5) end_stream(c);
                    else enqueue(c);
                }
            }
            if (!c->dead && (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) readable(c);
        }
        uint64_t now = now_ns();
        struct conn *stop = qtail; /* one turn for each stream queued now */
        while (qhead && (qhead->dead || qhead->deadline <= now)) {
            struct conn *c = qhead;
            bool last = c == stop;
            qhead = c->qnext;
            if (!qhead) qtail = NULL;
            c->queued = false;
            if (c->dead) free(c);
            else if (c->out_len == 0) pump(c, now);
            if (last) break;
        }
    }
}
