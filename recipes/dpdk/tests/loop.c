/* SPDX-License-Identifier: BSD-3-Clause
 * Starts DPDK without huge pages and PCI devices, sends packets through a ring
 * device, whose sent packets come back, and through a null device, and checks
 * what arrives. Prints the version that the archives have.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_version.h>

enum { BURST = 32, ROUNDS = 100, POOL = 1023 };

static int failed(const char *what, int code) {
  fprintf(stderr, "%s: %d (%s)\n", what, code, rte_strerror(code < 0 ? -code : rte_errno));
  return 1;
}

static int first_allowed_cpu(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed))
      return cpu;
  return 0;
}

static int start(uint16_t port, struct rte_mempool *pool) {
  struct rte_eth_conf conf;
  int code;
  memset(&conf, 0, sizeof conf);
  if ((code = rte_eth_dev_configure(port, 1, 1, &conf)) != 0)
    return failed("configure", code);
  if ((code = rte_eth_rx_queue_setup(port, 0, 128, 0, NULL, pool)) != 0)
    return failed("receive queue", code);
  if ((code = rte_eth_tx_queue_setup(port, 0, 128, 0, NULL)) != 0)
    return failed("send queue", code);
  if ((code = rte_eth_dev_start(port)) != 0)
    return failed("start", code);
  return 0;
}

static int loop_once(uint16_t port, struct rte_mempool *pool, uint64_t round) {
  struct rte_mbuf *sent[BURST], *received[BURST];
  if (rte_pktmbuf_alloc_bulk(pool, sent, BURST) != 0)
    return failed("packets", -ENOMEM);
  for (uint64_t i = 0; i < BURST; ++i) {
    const uint64_t payload = round * BURST + i;
    memcpy(rte_pktmbuf_append(sent[i], 64), &payload, sizeof payload);
  }
  if (rte_eth_tx_burst(port, 0, sent, BURST) != BURST)
    return failed("send", -EIO);
  if (rte_eth_rx_burst(port, 0, received, BURST) != BURST)
    return failed("receive", -EIO);
  for (uint64_t i = 0; i < BURST; ++i) {
    uint64_t payload;
    memcpy(&payload, rte_pktmbuf_mtod(received[i], char *), sizeof payload);
    if (payload != round * BURST + i || rte_pktmbuf_pkt_len(received[i]) != 64) {
      fprintf(stderr, "packet %" PRIu64 " of round %" PRIu64 " holds %" PRIu64 "\n", i, round, payload);
      return 1;
    }
    rte_pktmbuf_free(received[i]);
  }
  return 0;
}

int main(void) {
  char cores[32];
  char *arguments[] = {"loop",     "--lcores", cores,    "--no-huge", "-m", "64", "--no-pci", "--no-shconf",
                       "--vdev",   "net_ring0", "--vdev", "net_null0", "--log-level", "4"};
  struct rte_mempool *pool;
  struct rte_eth_stats stats;
  uint16_t ring, null;
  int code;

  snprintf(cores, sizeof cores, "0@%d", first_allowed_cpu());
  if ((code = rte_eal_init(sizeof arguments / sizeof *arguments, arguments)) < 0)
    return failed("rte_eal_init", -rte_errno);
  if ((code = rte_eth_dev_get_port_by_name("net_ring0", &ring)) != 0 ||
      (code = rte_eth_dev_get_port_by_name("net_null0", &null)) != 0)
    return failed("the devices", code);
  pool = rte_pktmbuf_pool_create("pool", POOL, 32, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
  if (pool == NULL)
    return failed("pool", -rte_errno);
  if (start(ring, pool) != 0 || start(null, pool) != 0)
    return 1;
  for (uint64_t round = 0; round < ROUNDS; ++round)
    if (loop_once(ring, pool, round) != 0)
      return 1;
  if ((code = rte_eth_stats_get(ring, &stats)) != 0 || stats.ipackets != ROUNDS * BURST)
    return failed("statistics", code);
  /* the drivers that this machine has no device for are there if their names are known */
  if (rte_vdev_init("net_no_such_driver0", "") == 0)
    return failed("an unknown driver was taken", 0);
  rte_eth_dev_stop(ring);
  rte_eth_dev_stop(null);
  printf("%s\n", rte_version());
  return rte_eal_cleanup() == 0 ? 0 : 1;
}
