/* The same work through librdkafka, as a reference: produce or consume 100-byte messages and print the client's CPU per message.
 *
 *   cc -O2 librdkafka_peer.c -o librdkafka_peer -lrdkafka
 *   librdkafka_peer produce BOOTSTRAP TOPIC MESSAGES SIZE RATE LINGER_MS BATCH_BYTES     (RATE 0: as fast as it goes)
 *   librdkafka_peer consume BOOTSTRAP TOPIC MESSAGES PARTITIONS
 *
 * Prints one JSON object on standard output.
 */
#include <librdkafka/rdkafka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static int64_t acknowledged, failed;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) failed++;
    else acknowledged++;
}

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char reason[512];
    if (rd_kafka_conf_set(conf, key, value, reason, sizeof reason) != RD_KAFKA_CONF_OK) {
        fprintf(stderr, "%s: %s\n", key, reason);
        exit(2);
    }
}

static rd_kafka_t *connect_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char reason[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, reason, sizeof reason);
    if (!client) {
        fprintf(stderr, "%s\n", reason);
        exit(3);
    }
    return client;
}

static void report(int64_t messages, double seconds, double cpu) {
    printf("{\"version\": \"%s\", \"messages\": %lld, \"failed\": %lld, \"seconds\": %.3f, \"cpu_s\": %.3f}\n", rd_kafka_version_str(),
           (long long)messages, (long long)failed, seconds, cpu);
}

static int produce(char **arguments) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", arguments[0]);
    set(conf, "acks", "all");
    set(conf, "linger.ms", arguments[5]);
    set(conf, "batch.size", arguments[6]);
    set(conf, "batch.num.messages", "1000000");
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "max.in.flight.requests.per.connection", "5");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = connect_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[1], NULL);
    int64_t messages = atoll(arguments[2]), size = atoll(arguments[3]);
    double rate = atof(arguments[4]), start = now_s(), cpu = cpu_s();
    char *payload = calloc(1, size);
    for (int64_t sent = 0; sent < messages;) {
        int64_t due = rate > 0 ? (int64_t)((now_s() - start) * rate) : messages;
        if (due > messages) due = messages;
        for (; sent < due; sent++) {
            while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload, size, NULL, 0, NULL) == -1)
                rd_kafka_poll(client, 1);
            if (rate == 0 && sent % 1000 == 0) rd_kafka_poll(client, 0);
        }
        while (rd_kafka_poll(client, 0) > 0) {}
        if (rate > 0) nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    rd_kafka_flush(client, 60000);
    report(acknowledged, now_s() - start, cpu_s() - cpu);
    return failed || acknowledged != messages;
}

static int consume(char **arguments) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", arguments[0]);
    set(conf, "group.id", "librdkafka-peer");
    set(conf, "enable.auto.commit", "false");
    set(conf, "check.crcs", "true");
    set(conf, "fetch.message.max.bytes", "1048576");
    rd_kafka_t *client = connect_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[1], NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    int64_t messages = atoll(arguments[2]), received = 0;
    double start = now_s(), cpu = cpu_s(), last = start;
    for (int partition = 0; partition < atoi(arguments[3]); partition++)
        rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue);
    static rd_kafka_message_t *batch[10000];
    while (received < messages && now_s() - last < 20) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 200, batch, 10000);
        for (ssize_t at = 0; at < count; at++) {
            if (batch[at]->err == 0) received++, last = now_s();
            rd_kafka_message_destroy(batch[at]);
        }
    }
    report(received, now_s() - start, cpu_s() - cpu);
    return received < messages;
}

int main(int count, char **arguments) {
    if (count == 9 && !strcmp(arguments[1], "produce")) return produce(arguments + 2);
    if (count == 6 && !strcmp(arguments[1], "consume")) return consume(arguments + 2);
    fprintf(stderr, "see the head of librdkafka_peer.c\n");
    return 2;
}
