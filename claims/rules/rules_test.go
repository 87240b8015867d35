package rules

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
)

func audit(tb testing.TB, table string) claims.Report {
	tb.Helper()
	r, err := Audit(tb.Context(), strings.NewReader(table))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// found returns the rules that find something, with the lines.
func found(r claims.Report) []string {
	var names []string
	for _, f := range r.Findings {
		var lines []string
		for _, w := range f.Figures {
			lines = append(lines, strconv.Itoa(w.Line))
		}
		names = append(names, f.Rule+" "+strings.Join(lines, ","))
	}
	return names
}

// Five published articles. What can be found in them was worked out by hand before this package existed.
func TestPublished(t *testing.T) {
	data, err := os.ReadFile("../testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	r := audit(t, string(data))
	r.File = "published.csv"
	shown := r.Text(terminal.Terminal{Columns: 100})
	golden.Check(t, "../testdata/published.want.txt", []byte(shown))
	for _, want := range []string{ // the arithmetic that was worked out by hand
		"= 29.4%", "= 52.6%", "= 74.6%", "= 125.1%", "= 300.6%", "= 223.2%", // not "up to 30%"
		"× 0.26 to × 0.63",                               // P99 of the same
		"10.24 GiB/s × 8 = 88.0 Gbit/s",                  //
		"10.94 GiB/s × 8 = 94.0 Gbit/s",                  //
		"99.8%", "93.4 Gbit/s", "2,239", "1,311", "1.71", // of line rate; requests a CPU
		"4,692.99 req/s × 1 MiB = 4.58 GiB/s, printed 4.69",
		"18 ÷ 16", "31.7 years", "1=CLOCK_REALTIME", "CPU 0 is not in 2-3", "period 5 s",
		"at least 118 percent", "names ovs_dpdk", "5 minutes", "125,000 bytes",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("expected %q", want)
		}
	}
}

// With the two misprints and the claim corrected, their findings are gone, and no others appear.
func TestPublishedCorrected(t *testing.T) {
	data, err := os.ReadFile("../testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	was := found(audit(t, string(data)))
	corrected := strings.NewReplacer(`GB/s (as written),4.69`, `GB/s (as written),4.58`, `threads_as_written,count,18`,
		`threads_as_written,count,32`, `transfer_gain_claimed,percent,30`, `transfer_gain_claimed,percent,301`,
		`loops,count,1000000000000`, `loops,count,1000000`).Replace(string(data))
	is := found(audit(t, corrected))
	for _, gone := range []string{"product 120,121,189", "threads 194,195", "too-long 79,80"} {
		if !slices.Contains(was, gone) || slices.Contains(is, gone) {
			t.Errorf("%s: expected with the misprint only: %v", gone, is)
		}
	}
	if slices.ContainsFunc(is, func(s string) bool {
		return strings.HasPrefix(s, "comparison") || strings.HasPrefix(s, "bare-maximum")
	}) {
		t.Errorf("%v", is)
	}
	if len(is) != len(was)-5 {
		t.Errorf("%d findings, then %d:\n%s", len(was), len(is), cmp.Diff(was, is))
	}
}

const head = "scenario,config,metric,unit,value,qualifier\n"

// planted returns tables with an error for each rule, with which their names begin, and their corrections:
// "bad>good" in a field, "-bad row" and "+good row".
func planted() map[string]string {
	return map[string]string{
		"binary-units": `
web,a,requests_per_s,req/s,1000.0,
web,a,transfer,MB/s,976.6>1000.0,
web,b,requests_per_s,req/s,2000.0,
web,b,transfer,MB/s,1953.1>2000.0,
web setup,,object_size,kB,1000,`,
		"product": `
udp,a,packet_rate,pps,1000000,
udp,a,packet_size,bytes,1000,
udp,a,throughput,Gbps,9.00>8.00,
udp,b,packet_rate,pps,500000,
udp,b,packet_size,bytes,1000,
udp,b,throughput,Gbps,4.00,`,
		"in-flight": `
web,connections=20,requests_per_s,req/s,5000,
web,connections=20,latency_mean,ms,40.0>3.9,
web,connections=20,latency_p99,ms,60.0,`,
		"repeat": `
rtt,a,rtt_p50,us,20.0,
rtt,a,rtt_p50,us,25.0>20.1,`,
		"same-quantity": `
web,a,throughput,Gbps,9.40,
web,a,transfer,GB/s,1.05>1.15,`,
		"order": `
rtt,a,rtt_p99,us,95>45,
rtt,a,rtt_p99.9,ms,0.060,
rtt,a,samples,count,100000,`,
		"mean/max": `
net,a,throughput_mean,Gbps,9.2>8.1,
net,a,throughput_max,Gbps,8.9,
net,a,samples,count,100,`,
		"mean/percentile": `
rtt,a,rtt_avg,us,9.0>25.0,
rtt,a,rtt_p50,us,20.0,
rtt,a,samples,count,100000,`,
		"mean": `
rtt,a,rtt_min,us,10,
rtt,a,rtt_avg,us,7>25,
rtt,a,rtt_p90,us,50,
rtt,a,rtt_max,us,100,
rtt,a,samples,count,100000,`,
		"deviation": `
rtt,a,rtt_min,us,10.0,
rtt,a,rtt_max,us,20.0,
rtt,a,rtt_stddev,us,9.0>4.0,
rtt,a,samples,count,100000,`,
		"order/ids": `
host,isolcpus,cpu_first,cpu_id,5>2,
host,isolcpus,cpu_last,cpu_id,3,`,
		"order/range": `
sat,a,goodput,Gbps,7.9,range_low
sat,a,goodput,Gbps,8.1,range_high
sat,a,goodput,Gbps,9.0>8.0,`,
		"whole/more": `
web,a,hit_rate,percent,101.5>99.5,`,
		"whole": `
web,a,hit_rate,percent,97.0,
web,a,miss_rate,percent,5.0>3.0,`,
		"derived/cpu": `
web,cpus=4,throughput,Gbps,8.0,
web,cpus=4,throughput_per_cpu,Gbps,3.0>2.0,`,
		"balance": `
udp,a,packets_sent,count,1000,
udp,a,packets_received,count,990,
udp,a,packet_loss,percent,2.0>1.0,`,
		"threads": `
host setup,node,cores,count,16,
host setup,node,threads,count,18>32,`,
		"over-line": `
udp,nic,link_rate,Gbps,10,
udp,a,throughput,GB/s,1.5>0.5,`,
		"at-limit": `
tcp,nic,link_rate,Gbps,10,
tcp,a,throughput,Gbps,9.40>8.50,`,
		"too-long/run": `
rt setup,,test_duration,h,50000>50,`,
		"same-goal": `
web,pinned=no,cpus_for_10G,count,8,
web,pinned=yes,cpus_for_10G,count,5,
web,pinned=no; cpus=8,throughput,Gbps,8.70>9.90,
web,pinned=yes; cpus=5,throughput,Gbps,9.95,`,
		"too-long": `
rt setup,cyclictest,interval,us,200,
rt setup,cyclictest,loops,count,1000000000000>1000000,`,
		"longer-than-run": `
rt,a,latency_max,ms,90000>90,
rt setup,,test_duration,s,60,`,
		"too-few-samples": `
rt,a,rtt_p99.99,us,80,
rt,a,samples,count,5000>500000,`,
		"wall-clock": `
rt setup,cyclictest,clock_id(1=CLOCK_REALTIME),id,1>0,`,
		"not-isolated": `
rt setup,cyclictest,affinity_cpu,cpu_id,0>2,
rt setup,host isolcpus,cpu_first,cpu_id,2,
rt setup,host isolcpus,cpu_last,cpu_id,3,`,
		"noise-rate": `
rt setup,noise,stress_period,s,5,
+rt setup,noise,stress_load,percent,80,`,
		"no-result": `
rtt,cores=4,rtt_p99,us,40,
rtt,worst case: one core,instances,count,2,
+rtt,worst case: one core,rtt_p99,us,90,`,
		"no-variant": `
net setup,software,ovs_dpdk,version,2.13.0,
net,kernel OVS,throughput,Gbps,8,
+net,OVS-DPDK,throughput,Gbps,9,`,
		"same-quantity/less": `
udp,a,throughput,Gbps,6.40>9.40,
udp,a,transfer,GB/s,1.150,`,
		"comparison": `
web,cpus=4; path=bridge,throughput,Gbps,5.0,
web,cpus=4; path=vf,throughput,Gbps,8.0,
web,vf vs bridge,throughput_gain,percent,30>60,claimed`,
		"derived": `
rtt,quiet; floating,rtt_mean,us,40.0,
rtt,noisy; floating,rtt_mean,us,64.0,
rtt,quiet; floating,rtt_mean_rel_quiet,percent,100,
rtt,noisy; floating,rtt_mean_rel_quiet,percent,140>160,
rtt,quiet; floating,rtt_p99,us,60.0,
rtt,noisy; floating,rtt_p99,us,90.0,`,
		"product/iops": `
fio,ssd,iops,kIOPS,98.0,
fio,ssd,block_size,KiB,4,
fio,ssd,bandwidth,MiB/s,483.0>382.9,`,
		"product/time": `
web,a,requests_per_s,req/s,1000,
web,a,duration,s,60,
web,a,requests,count,600000>60000,`,
		"product/loops": `
rt,a,loops,count,600000>60000,
rt,a,interval,ms,1,
rt,a,duration,s,60,`,
		"derived/socket": `
host setup,host,sockets,count,2,
host setup,host,cores_per_socket,count,24>20,
host setup,host,cores_total,count,40,`,
		"same-quantity/units": `
udp,a,throughput,Mbps,800,
udp,a,throughput,MB/s,800>100,`,
		"comparison/minus": `
vpp,vm; one hop,throughput,Gbps,7.0,
vpp,bare metal; one hop,throughput,Gbps,10.0,
vpp,vm minus bare metal,throughput_loss,Gbps,1.0>3.0,`,
		"comparison/reduction": `
rtt,floating,rtt_p99,us,80,
rtt,pinned,rtt_p99,us,40,
rtt,pinned vs floating,rtt_p99_reduction,percent,100>50,`,
		"comparison/over": `
web,quiet; pinned,throughput,Gbps,5.0,
web,noisy; pinned,throughput,Gbps,4.0,
web,pinned; quiet vs noisy,throughput_noisy_over_quiet,ratio,0.50>0.80,`,
		"over-line/packets": `
udp,nic,link_rate,Gbps,10,
udp,a,packet_rate,Mpps,16.1>11.0,`,
		"at-limit/named": `
net,quiet,throughput_rel_quiet,percent,100,
net,vf,throughput_rel_quiet,percent,118,
-net,link (the limiter of the 118% result),rate,Gbps,10,limit
net,quiet,throughput,Gbps,8.00,`,
		"too-few-samples/packets": `
echo,lane,packets,count,20000>2000000,
echo,lane,rtt_p99.999,us,71,`,
		"too-few-samples/rate": `
web,a,requests_per_s,req/s,10.0>9000.0,
web,a,latency_p99.9,ms,20,
web setup,run,duration,s,10,`,
		"changes-together": `
web,threads=4; connections=20,requests_per_s,req/s,100,
web,threads=8; connections=40,requests_per_s,req/s,110,
web,threads=16; connections=60,requests_per_s,req/s,120,
+web,threads=16; connections=20,requests_per_s,req/s,120,`,
		"confounded": `
vpp,container minus bare metal,throughput_loss,Gbps,1.0,
vpp,container>container; one hop,throughput,Gbps,9.0,
-vpp,bare metal; two instances,throughput,Gbps,10.0,
+vpp,bare metal; one hop,throughput,Gbps,10.0,`,
		"no-quiet": `
rtt,quiet; floating,rtt_p99,us,40,
rtt,noisy; floating,rtt_p99,us,90,
rtt,noisy; pinned,rtt_p99,us,60,
+rtt,quiet; pinned,rtt_p99,us,42,`,
		"no-absolute": `
net,quiet,throughput_rel_quiet,percent,100,
net,pinned,throughput_rel_quiet,percent,80,
+net,quiet,throughput,Gbps,5.00,`,
		"mean-only": `
rtt,a,rtt_mean,us,40,
+rtt,a,rtt_p99,us,90,`,
		"bare-maximum": `
rt,a,wakeup_latency_max,us,40,
+rt setup,,test_duration,h,12,`,
		"only-range": `
sat,a,saturation_point,Gbps,8,range_low
sat,a,saturation_point,Gbps,10>8.4,range_high`,
		"derived/core": `
web,cores=6,requests_per_s,req/s,48000,
web,cores=6,requests_per_s_per_core,req/s,6000>8000,
web,cores=12,requests_per_s,req/s,90000,
web,cores=12,requests_per_s_per_core,req/s,7500,`,
		"comparison/rate": `
kv,baseline,ops_rate,ops/s,120000,
kv,optimized,ops_rate,ops/s,216000,
kv,optimized vs baseline,ops_rate_speedup,x,2.5>1.8,claimed`,
		"comparison/faster": `
rtt,veth,latency_p50,us,60,
rtt,express,latency_p50,us,24,
rtt,express vs veth,latency_p50_times_faster,x,3.5>2.5,`,
		"comparison/most": `
web,c=4; on,requests_per_s,req/s,100,
web,c=4; off,requests_per_s,req/s,90,
web,c=8; on,requests_per_s,req/s,200,
web,c=8; off,requests_per_s,req/s,120,
web,on vs off,requests_per_s_gain_max,percent,95>66.7,`,
		"product/threads": `
rt,threads=2,samples,count,90000>120000,
rt,threads=2,interval,us,1000,
rt,threads=2,duration,s,60,`,
		"over-line/both": `
fwd setup,nic,link_rate,Gbps,10,
fwd,lane,throughput_bidirectional,Gbps,28.7>18.2,`,
		"comparison/reduction of a tail": `
tail,default,latency_p99,ms,12.4,
tail,pinned,latency_p99,ms,3.1,
tail,pinned vs default,latency_p99_reduction,percent,96>75,
tail,pinned vs default,latency_p99_speedup,x,4,`,
		"order/units": `
rtt,vm,latency_p50,us,42,
rtt,vm,latency_p99,ms,0.88>0.68,
rtt,vm,latency_p99.9,us,710,
rtt,vm,samples,count,100000,`,
		"product/decimal": `
fio,randread,iops,kIOPS,245,
fio,randread,block_size,KiB,4,
fio,randread,bandwidth,MB/s,1254>1003,`,
		"balance/percent": `
udp,a,packets_sent,count,1000000,
udp,a,packets_received,count,998000,
udp,a,packet_loss,percent,0.0200>0.2000,`,
		"balance/rates": `
fwd,a,tx_rate,Mpps,10.00,
fwd,a,rx_rate,Mpps,9.50,
fwd,a,packet_loss,percent,0.50>5.00,`,
		"balance/errors": `
web,a,requests,count,10000,
web,a,errors,count,300,
web,a,error_rate,percent,0.30>2.91,`,
		"balance/hits": `
cache,a,requests,count,10000,
cache,a,hits,count,9000,
cache,a,hit_rate,percent,97.0>90.0,`,
		"whole/lost": `
udp,a,packets_sent,count,1000,
udp,a,packets_lost,count,1200>12,`,
		"whole/cpu": `
web,cpus=4,cpu_usage,percent,450>400,
web,cpus=4,throughput,Gbps,8.0,`,
		"over-line/frames": `
fwd setup,nic,link_rate,Gbps,10,
fwd,a,packet_rate,Mpps,0.90>0.81,
fwd,a,frame_size,bytes,1518,`,
		"whole/reduction": `
tail,pinned vs default,latency_p99_reduction,percent,150>75,`,
		"whole/goodput": `
tcp,a,goodput,Gbps,9.60>8.90,
tcp,a,throughput,Gbps,9.20,`,
		"whole/times": `
host,noisy,cpu_user,percent,62.0,
host,noisy,cpu_system,percent,31.0,
host,noisy,cpu_idle,percent,27.0>7.0,`,
		"whole/idle": `
host,noisy,cpu_used,percent,81>61,
host,noisy,cpu_idle,percent,39,`,
		"total": `
tcp,a,throughput_up,Gbps,4.10,
tcp,a,throughput_down,Gbps,5.30,
tcp,a,throughput_total,Gbps,10.40>9.40,`,
		"total/packets": `
fwd,a,rx_packets,count,1000,
fwd,a,tx_packets,count,998,
fwd,a,total_packets,count,2198>1998,`,
		"over-line/use": `
tcp,nic,link_rate,Gbps,10,
tcp,a,throughput,Gbps,8.20>7.10,
tcp,a,link_utilization,percent,75,`,
		"derived/load": `
gen,threads=8,requests_per_s,req/s,96000,
gen,threads=8,requests_per_s_per_thread,req/s,30000>11300,`,
		"balance/more received": `
mc,a,packets_sent,count,50000,
mc,a,packets_received,count,50200>49900,
mc,a,packets_lost,count,0>100,`,
		"balance/rates lost": `
nat,a,offered,Mpps,12.0,
nat,a,forwarded,Mpps,11.5,
nat,a,dropped,Mpps,1.5>0.5,`,
		"balance/more forwarded": `
nat,a,offered,Mpps,10.00,
nat,a,forwarded,Mpps,10.20>9.80,
nat,a,packet_loss,percent,0.00>2.00,`,
		"balance/tx and rx": `
sw,a,tx_rate,kpps,700,
sw,a,rx_rate,kpps,640,
sw,a,lost_rate,kpps,160>60,`,
		"balance/share of lost": `
udp,a,datagrams_sent,count,400000,
udp,a,datagrams_lost,count,800,
udp,a,datagram_loss,percent,2.0>0.2,`,
		"over-line/two links": `
lb setup,nic,link_rate,Gbps,10,
lb setup,nic,links,count,2,
lb,a,throughput,Gbps,23.0>17.0,`,
		"over-line/frame in the configuration": `
gw setup,nic,link_rate,Gbps,25,
gw,frame=1024B,packet_rate,Mpps,3.4>2.9,
gw,frame_size=512,packet_rate,Mpps,5.5,`,
		"over-line/across hosts": `
cni setup,nic,link_rate,Gbps,10,
cni,pod to pod across nodes,throughput,Gbps,12.9>8.9,`,
		"product/frame in the configuration": `
sw,frame=128B,packet_rate,Mpps,20.00,
sw,frame=128B,throughput,Gbps,28.40>20.48,
sw,1024B frames,packet_rate,Mpps,4.00,
sw,1024B frames,throughput,Gbps,32.77,`,
		"product/no compression": `
web,compression=off,requests_per_s,req/s,2000,
web,compression=off,object_size,kB,50,
web,compression=off,transfer,MB/s,10.0>100.0,`,
		"product/run in the configuration": `
web,duration=30s,requests_per_s,req/s,1500,
web,duration=30s,requests,count,90000>45000,`,
		"total/streams": `
perf -P 3,cubic; stream 1,throughput,Gbps,3.10,
perf -P 3,cubic; stream 2,throughput,Gbps,2.95,
perf -P 3,cubic; stream 3,throughput,Gbps,3.02,
perf -P 3,cubic; SUM,throughput,Gbps,10.07>9.07,`,
		"total/part": `
dc,tenant red,requests,count,7100>5100,
dc,tenant blue,requests,count,900,
dc,total,requests,count,6100,`,
		"total/all queues": `
rss,queue=0,rx_packets,count,250000,
rss,queue=1,rx_packets,count,260000,
rss,all queues,rx_packets,count,610000>510000,`,
		"total/time": `
cpu,a,cpu_user,percent,30.0,
cpu,a,cpu_system,percent,12.0,
cpu,a,cpu_iowait,percent,1.0,
cpu,a,cpu_irq,percent,0.5,
cpu,a,cpu_softirq,percent,6.5,
cpu,a,cpu_steal,percent,20.0>2.0,
cpu,a,cpu_idle,percent,48.0,`,
		"total/time of mpstat": `
cpu,a,%usr,percent,10.0,
cpu,a,%nice,percent,2.0,
cpu,a,%sys,percent,5.0,
cpu,a,%iowait,percent,0.0,
cpu,a,%irq,percent,0.0,
cpu,a,%soft,percent,1.0,
cpu,a,%steal,percent,0.0,
cpu,a,%guest,percent,4.0,
cpu,a,%gnice,percent,3.0,
cpu,a,%idle,percent,70.0>75.0,`,
		"order/confidence": `
dns,a,lookup_time_mean,ms,5.10,
dns,a,lookup_time_ci95_low,ms,5.30>4.90,
dns,a,lookup_time_ci95_high,ms,5.50,`,
		"comparison/points": `
ovs,kernel,cpu_load,percent,72,
ovs,offload,cpu_load,percent,48,
ovs,kernel minus offload,cpu_load_difference,pp,33>24,`,
		"too-fast": `
wan setup,Madrid to Miami,fibre_length,km,6900>690,
wan setup,Madrid to Lisbon,fibre_length,km,600,
wan,Madrid to Miami,rtt_min,ms,31.2,
wan,Madrid to Lisbon,rtt_min,ms,7.9,`,
		"too-fast/one way": `
edge setup,,distance,mi,900>90,
edge,a,latency_p50,ms,2.2,`,
		"too-fast/echo": `
lan setup,switch,link_rate,Mbps,100>1000,
lan,ping; frame=1500B,rtt_min,us,150,`,
		"too-fast/object": `
cdn setup,edge,link_rate,Gbps,1>10,
cdn,plain,object_size,MB,4,
cdn,plain,latency_p50,ms,20,`,
		"odd-unit": `
vm,1 queue,throughput,Gbit/s,8.1,
vm,2 queues,throughput,Gbit/s,15.2,
vm,4 queues,throughput,GB/s>Gbit/s,19.4,
vm,8 queues,throughput,Gbit/s,24.0,`,
		"averaged": `
http,run 1,latency_p99,ms,11.0,
http,run 2,latency_p99,ms,31.0,
http,average of 2 runs>all requests,latency_p99,ms,21.0>24.6,`,
		"averaged/metric": `
http,a,latency_p99_mean>latency_p99,ms,21.0,`,
		"order/P100": `
osl,cpu 4,latency_p100,us,8>11,
osl,cpu 4,latency_max,us,11,
osl setup,,runtime,h,12,`,
		"whole/times and softirq": `
mp,a,%usr,percent,30.9,
mp,a,%sys,percent,12.2,
mp,a,%soft,percent,31.5>4.5,
mp,a,%idle,percent,52.4,`,
		"whole/isolated CPUs": `
box setup,server,logical_cpus,count,64,
box setup,server,isolated_cpus,count,60>56,
box setup,server,housekeeping_cpus,count,8,`,
		"whole/pinned CPUs": `
box setup,server,logical_cpus,count,32,
box setup,vnf,pinned_cpus,count,40>24,`,
		"whole/CPUs in the configuration": `
box setup,server,logical_cpus,count,32,
box,cpus=64>24,throughput,Gbps,18.0,`,
		"whole/number of a CPU": `
box setup,server,logical_cpus,count,32,
box setup,cyclictest,affinity_cpu,cpu_id,32>31,`,
		"balance/hits and misses": `
cdn,edge,hits,count,412000,
cdn,edge,misses,count,103000,
cdn,edge,hit_ratio,percent,75.0>80.0,
cdn,edge,miss_ratio,percent,20.0,`,
		"balance/tx and rx counts": `
gen,512B,tx packets,count,23496240,
gen,512B,rx packets,count,23489190,
gen,512B,loss,percent,0.30>0.03,`,
		"deviation/jitter": `
ptp,loaded,delay_min,us,14.4,
ptp,loaded,delay_max,us,26.1,
ptp,loaded,delay_variation,us,21.7>11.7,
ptp setup,,measurement time,min,60,`,
		"deviation/std dev": `
rtt,a,min latency,us,10.1,
rtt,a,max latency,us,14.9,
rtt,a,latency std dev,us,12.3>1.3,
rtt,a,samples,count,100000,`,
		"derived/cores in words": `
vpp,4 worker cores,throughput,Gbps,22.4,
vpp,4 worker cores,throughput_per_core,Gbps,7.6>5.6,`,
		"in-flight/connections in words": `
web,100 connections,requests/s,req/s,84000,
web,100 connections,mean latency,ms,11.9>1.19,
web,100 connections,p99 latency,ms,19.0,`,
		"product/whole hours": `
cyc setup,rt-tests,interval,us,1000,
cyc,a,loops,count,360000>3600000,
cyc,a,duration,h,1,`,
		"product/transactions": `
sql,64 clients,tps,tps,21900,
sql,64 clients,transactions,count,1314000>6570000,
sql,64 clients,duration,s,300,`,
		"product/energy": `
pow,a,mean power,W,210,
pow,a,duration,h,24,
pow,a,energy,kWh,50.4>5.04,`,
		"total/read and write": `
ssd,mix,read_iops,kIOPS,91.2,
ssd,mix,write_iops,kIOPS,39.1,
ssd,mix,total_iops,kIOPS,150.3>130.3,`,
		"balance/retransmissions": `
wan,a,segments sent,count,500000,
wan,a,retransmissions,count,2500,
wan,a,retransmission rate,percent,5.0>0.5,`,
		"comparison/units in metrics": `
vr,virtio,throughput [Mpps],Mpps,9.3,
vr,sriov,throughput [Mpps],Mpps,28.1,
vr,sriov vs virtio,throughput increase,percent,302>202,`,
		"comparison/times": `
lat,lane,p99_us,us,19,
lat,floating,p99_us,us,412,
lat,lane vs floating,p99 improvement,x,12.7>21.7,`,
		"over-line/GbE": `
tr setup,tester,NIC speed,GbE,25,
tr,64B frames,rate_mpps,Mpps,38.9>30.1,`,
		"product/efficiency": `
pow,a,throughput,Gbps,80,
pow,a,power,W,400,
pow,a,efficiency,Gbps/W,0.40>0.20,`,
		"product/downtime": `
sla,a,availability,percent,99.99,
sla,a,downtime,min,526>52.6,
sla,a,observation period,d,365,`,
		"total/UL+DL": `
upf,a,UL throughput,Gbps,12.4,
upf,a,DL throughput,Gbps,61.8,
upf,a,UL+DL throughput,Gbps,84.2>74.2,`,
		"comparison/slash": `
web,bridge,requests_per_s,req/s,41200,
web,sriov,requests_per_s,req/s,61900,
web,sriov/bridge,requests_per_s_ratio,ratio,1.35>1.50,`,
		"comparison/the wrong way": `
ids,af_packet,processing_time,s,412,
ids,dpdk,processing_time,s,187,
ids,dpdk vs af_packet,processing_time_speedup,x,0.45>2.2,`,
		"comparison/the wrong base": `
kv,baseline,throughput,kops/s,1000,
kv,tuned,throughput,kops/s,1250,
kv,tuned vs baseline,throughput_gain,percent,20>25,`,
		"comparison/the base in the metric": `
lane,default,throughput,Gbps,6.2,
lane,pinned,throughput,Gbps,7.9,
lane,pinned,throughput_gain_vs_default,percent,72>27,`,
		"ambiguous-unit": `
web setup,,object_size,Mb>Mbit,1,`,
	}
}

// variants returns the tables with the error and without.
func variants(rows string) (bad, good string) {
	for line := range strings.Lines(strings.TrimSpace(rows) + "\n") {
		if rest, ok := strings.CutPrefix(line, "-"); ok {
			bad += rest
			continue
		}
		if rest, ok := strings.CutPrefix(line, "+"); ok {
			good += rest
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ",")
		right := slices.Clone(fields)
		for k, f := range fields {
			if b, g, ok := strings.Cut(f, ">"); ok {
				fields[k], right[k] = b, g
			}
		}
		bad += strings.Join(fields, ",") + "\n"
		good += strings.Join(right, ",") + "\n"
	}
	return head + bad, head + good
}

func TestPlanted(t *testing.T) {
	tables := planted()
	maps.Copy(tables, plantedToo())
	for _, r := range rules() {
		if tables[r.id] == "" {
			t.Errorf("no table for %s: each rule needs one with its error", r.id)
		}
	}
	for name, rows := range tables {
		t.Run(name, func(t *testing.T) {
			bad, good := variants(rows)
			id, _, _ := strings.Cut(name, "/")
			report := audit(t, bad)
			if len(report.Findings) != 1 || report.Findings[0].Rule != id {
				t.Errorf("with the error: %q", found(report))
			}
			for _, f := range report.Findings {
				if len(f.Sum) == 0 || f.Conclusion == "" || f.Title == "" || f.Severity == claims.None {
					t.Errorf("%+v", f)
				}
			}
			if report = audit(t, good); len(report.Findings) > 0 {
				t.Errorf("without the error: %q", found(report))
			}
		})
	}
}

// Tables that look wrong and are right: binary beside decimal units, rounded shares, a fully used line,
// durations in other units, means beyond a percentile.
func TestLooksWrong(t *testing.T) {
	tables := clean()
	maps.Copy(tables, map[string]string{
		"GiB and GB": `
disk,a,throughput,GiB/s,1.00,
disk,a,bandwidth,GB/s,1.07,
disk,a,iops,IOPS,262144,
disk,a,block_size,KiB,4,`,
		"shares of more than a hundred together": `
cache,a,hit_rate,percent,66.7,
cache,a,miss_rate,percent,33.4,
cache,b,hit_rate,ratio,0.97,
cache,b,miss_rate,percent,3,`,
		"parts of several CPUs": `
host,a,cpus,count,4,
host,a,cpu_user,percent,150,
host,a,cpu_system,percent,90,
host,a,cpu_idle,percent,160,`,
		"a gain of a mean whose figures have tails": `
kv,lane,latency avg,ms,0.26,
kv,lane,latency p99,ms,1.2,
kv,floating,latency avg,ms,0.41,
kv,floating,latency p99,ms,9.2,
kv,lane vs floating,latency avg reduction,percent,37,`,
		"guests in the time of the user": `
cpu,a,user,percent,30.0,
cpu,a,system,percent,12.0,
cpu,a,iowait,percent,1.0,
cpu,a,irq,percent,0.5,
cpu,a,softirq,percent,6.5,
cpu,a,steal,percent,2.0,
cpu,a,nice,percent,4.0,
cpu,a,guest,percent,25.0,
cpu,a,idle,percent,44.0,`,
		"a total that is rounded": `
tcp,a,throughput_up,Gbps,4.14,
tcp,a,throughput_down,Gbps,5.33,
tcp,a,throughput_total,Gbps,9.5,`,
		"a total of peaks": `
tcp,a,throughput_up_max,Gbps,4.9,
tcp,a,throughput_down_max,Gbps,5.9,
tcp,a,throughput_total_max,Gbps,9.4,
tcp,a,samples,count,100,`,
		"two directions of different tests": `
tcp,one way,throughput_up,Gbps,9.1,
tcp,one way,throughput_down,Gbps,9.3,
tcp,both ways,throughput_total,Gbps,12.1,`,
		"goodput of one path, throughput of another": `
tcp,express,goodput,Gbps,9.6,
tcp,bridge,throughput,Gbps,9.2,`,
		"a reduction of all": `
tail,pinned vs default,drops_reduction,percent,100,`,
		"a gain that is rounded": `
web,base,throughput,req/s,310,
web,new,throughput,req/s,401,
web,new vs base,throughput_gain,percent,29,`,
		"a gain and the loss that it is from the other side": `
kv,old,ops_rate,kops/s,118,
kv,new,ops_rate,kops/s,210,
kv,new vs old,ops_rate_speedup,x,1.8,
kv,old vs new,ops_rate_decrease,percent,44,`,
		"line rate of the smallest frames": `
fwd setup,nic,link_rate,Gbps,10,
fwd,xdp,packet_rate,Mpps,14.88,
fwd,xdp,frame_size,bytes,64,
fwd,xdp,throughput,Gbps,7.62,`,
		"both ways of a line": `
fwd setup,nic,link_rate,Gbps,10,
fwd,lane,throughput_bidirectional,Gbps,18.2,
fwd,lane,throughput_rx,Gbps,9.1,
fwd,lane,throughput_tx,Gbps,9.1,`,
		"durations": `
load,a,requests_per_s,req/s,999.8,
load,a,duration,s,60.0,
load,a,requests,count,59988,
load,b,requests_per_s,req/s,1000,
load,b,duration,min,1,
load,b,requests,count,60000,
load,b,latency_max,s,1.2,`,
		"a mean above P90": `
rtt,a,latency_mean,us,95,
rtt,a,latency_p50,us,20,
rtt,a,latency_p90,us,60,
rtt,a,latency_p99,us,900,
rtt,a,latency_p99.9,us,9000,
rtt,a,latency_max,us,9000,
rtt,a,samples,count,100000,`,
		"samples of two threads": `
cyc,rt; threads=2,interval,us,1000,
cyc,rt; threads=2,duration,s,60,
cyc,rt; threads=2,samples,count,120000,
cyc,rt; threads=2,wakeup_latency_max,us,41,`,
		"all connections busy": `
http,connections=100,requests_per_s,req/s,1000,
http,connections=100,latency_avg,ms,99.8,
http,connections=100,latency_p99,ms,140,
http,connections=100,duration,s,60,`,
		"a part per million": `
udp,a,packets_sent,count,1000000,
udp,a,packets_received,count,999990,
udp,a,packet_loss,ppm,10,
udp,a,packet_rate,kpps,16.67,
udp,a,duration,s,60,`,
		"errors beside what succeeded": `
web,overload,requests,count,100,
web,overload,errors,count,900,
web,overload,error_rate,percent,90.0,`,
		"hits of some requests": `
cache,a,requests,count,12000,
cache,a,hits,count,9700,
cache,a,misses,count,300,
cache,a,hit_rate,percent,97.0,`,
		"the client's CPUs": `
web,cpus=4,client_cpu_usage,percent,700,
web,cpus=4,cpu_usage,percent,400,
web,cpus=4,throughput,Gbps,8.0,`,
		"Req/Sec of each thread": `
gen,threads=12; connections=300,requests_per_s,req/s,510300.2,
gen,threads=12; connections=300,requests_per_s_per_thread,req/s,39800,
gen,threads=12; connections=300,requests,count,15309006,
gen,threads=12; connections=300,duration,s,30.00,
gen,threads=12; connections=300,latency_mean,us,690,
gen,threads=12; connections=300,latency_max,ms,11.2,`,
		"a rate of each and no total": `
disk,cpus=8; 4k,iops_per_core,IOPS,25000,
disk,cpus=8; 4k,block_size,KiB,4,
disk,cpus=8; 4k,bandwidth,MiB/s,781,
web,threads=6; connections=60,requests_per_s_per_thread,req/s,5000,
web,threads=6; connections=60,requests,count,900000,
web,threads=6; connections=60,duration,s,30,
web,threads=6; connections=60,latency_mean,ms,2.0,
web,threads=6; connections=60,latency_p99,ms,8.0,
fwd,per core,packet_rate,Mpps,9.0,
fwd,per core,packet_size,bytes,64,
fwd,per core,throughput,Gbps,36.9,`,
		"several links": `
lab setup,server,link_rate,Gbps,25,
lab setup,server,nic_count,count,2,
lab,lacp,throughput,Gbps,45.2,
lab,lacp; 64B frames,packet_rate,Mpps,70.0,`,
		"links in words": `
lab setup,server: 2 x 25 GbE,link_rate,Gbps,25,
lab,hash by flow,throughput,Gbps,44.8,
lab,both directions,throughput,Gbps,91.0,`,
		"links in a text": `
lab setup,server,nic,text,2x Mellanox CX-5 100GbE,
lab setup,server,link_rate,Gbps,100,
lab,both ports,throughput,Gbps,171,`,
		"links of a bond that nobody counts": `
lab setup,server,link_rate,Gbps,10,
lab setup,bonding,mode,text,802.3ad,
lab,a,throughput,Gbps,27.0,`,
		"ports at once": `
lab setup,tester,link_rate,Gbps,10,
lab,four ports; frame=64B; total,packet_rate,Mpps,57.9,
lab,four ports; frame=64B; per port,packet_rate,Mpps,14.48,
lab,dual-port; frame=1518B,throughput,Gbps,19.6,
lab,rx+tx,throughput,Gbps,18.1,`,
		"traffic that crosses no link": `
lab setup,nic,link_rate,Gbps,10,
lab,veth pair,throughput,Gbps,41.0,
lab,loopback,throughput,Gbps,62.1,
lab,VM to VM; vhost-user,throughput,Gbps,22.4,
lab,two pods on one node,throughput,Gbps,30.5,
lab,intra-host; frame=64B,packet_rate,Mpps,19.0,
lab,pod to pod across nodes,throughput,Gbps,8.8,`,
		"several receivers": `
mc,1 sender; 4 receivers,packets_sent,count,20000,
mc,1 sender; 4 receivers,packets_received,count,79992,
mc,1 sender; 4 receivers,packets_lost,count,8,
fl,switch floods,packets_sent,count,1000,
fl,switch floods,packets_received,count,2000,
fl,switch floods,packet_loss,percent,0.0,`,
		"copies": `
dup,a,packets_sent,count,70000,
dup,a,packets_received,count,69990,
dup,a,packets_lost,count,17,
dup,a,duplicates,count,7,`,
		"loss of a switch's view": `
fwd,a,rx_rate,Mpps,9.00,
fwd,a,tx_rate,Mpps,8.10,
fwd,a,drop_rate,Mpps,0.90,
fwd,a,packet_loss,percent,10.0,`,
		"repetitions, and names of CPUs": `
rep,samples=5; 60 s each,latency_p99,us,40,
rep,samples=5; 60 s each,throughput,Gbps,9.0,
rep,core 3,packet_rate,Mpps,11.0,
rep,core 3,packet_rate_per_core,Mpps,11.0,`,
		"losses at one place of several": `
nat,a,offered,Mpps,20.0,
nat,a,forwarded,Mpps,14.2,
nat,a,dropped_nic,Mpps,4.1,
nat,a,packet_loss,percent,29.0,
fwd,a,packets_sent,count,100000,
fwd,a,packets_received,count,99000,
fwd,a,nic_lost,count,300,
fwd,a,packet_loss,percent,1.00,`,
		"points, and less of a share": `
ovs,a,cpu_use,percent,90,
ovs,b,cpu_use,percent,60,
ovs,a minus b,cpu_use_difference,pp,30,
ovs,b vs a,cpu_use_reduction,percent,33.3,
ovs,b vs a,cpu_use_saving,percent,30,`,
		"a difference in percent of what is no share": `
vpp,vm,throughput,Gbps,7.0,
vpp,bare metal,throughput,Gbps,10.0,
vpp,vm minus bare metal,throughput_loss,percent,30,`,
		"both ways at once beside each alone": `
tcp,a,throughput_up,Gbps,9.2,
tcp,a,throughput_down,Gbps,9.3,
tcp,a,throughput_bidirectional,Gbps,13.3,`,
		"goodput of a second": `
tcp,a,goodput,Mbit/s,912,
tcp,a,throughput,Mbit/s,908,`,
		"fewer bytes than objects": `
web,gzip,requests_per_s,req/s,4000,
web,gzip,object_size,kB,80,
web,gzip,transfer,MB/s,71,
web,cache=on; 304,requests_per_s,req/s,9000,
web,cache=on; 304,object_size,kB,80,
web,cache=on; 304,transfer,MB/s,2.0,`,
		"frames in a tunnel": `
vpn,frame=128B; vxlan,packet_rate,Mpps,5.00,
vpn,frame=128B; vxlan,throughput,Gbps,7.2,`,
		"latency from the planned start": `
gen,rate=30000; connections=50,target_rate,req/s,30000,
gen,rate=30000; connections=50,requests_per_s,req/s,21000,
gen,rate=30000; connections=50,latency_mean,s,4.1,
gen,rate=30000; connections=50,latency_p99,s,8.0,`,
		"maxima of what the configuration says": `
cyc,duration=2h; T:1,latency_max,us,44,
cyc,duration 90 min; T:1,latency_max,us,41,
cyc,samples=1000000,jitter_max,us,17,
fwd,frame=64B,latency_max,us,88,
fwd,frame=64B,packets_sent,count,3000000,`,
		"streams that were measured alone, or in a chain": `
vm,vm=1; alone,throughput,Gbps,9.1,
vm,vm=2; alone,throughput,Gbps,9.2,
vm,total,throughput,Gbps,9.3,
sfc,vm=1,throughput,Gbps,6.0,
sfc,vm=2,throughput,Gbps,6.0,
sfc,total,throughput,Gbps,6.0,
avg,port 1,throughput,Gbps,7.0,
avg,port 2,throughput,Gbps,8.0,
avg,all ports,throughput,Gbps,7.5,
lvl,threads=1,throughput,Gbps,3.0,
lvl,threads=2,throughput,Gbps,5.0,
lvl,all,throughput,Gbps,5.5,`,
		"runs and their total": `
run,run=1,requests,count,900,
run,run=2,requests,count,950,
run,total,requests,count,5000,`,
		"all the time of four CPUs": `
cpu,a,cpu_user,percent,60,
cpu,a,cpu_system,percent,50,
cpu,a,cpu_iowait,percent,10,
cpu,a,cpu_irq,percent,0,
cpu,a,cpu_softirq,percent,40,
cpu,a,cpu_steal,percent,40,
cpu,a,cpu_idle,percent,200,`,
		"an interval of the median": `
dns,a,lookup_time_mean,ms,9.0,
dns,a,lookup_time_median,ms,4.0,
dns,a,lookup_time_median_ci95_low,ms,3.8,
dns,a,lookup_time_median_ci95_high,ms,4.3,
dns,b,lookup_time_mean,ms,9.0,
dns,b,lookup_time_median,ms,4.0,
dns,b,lookup_time_ci95_low,ms,3.8,
dns,b,lookup_time_ci95_high,ms,4.3,`,
		"units that are compared with themselves only": `
pow,a,energy_p50,kJ,1.2,
pow,a,energy_p99,J,1900,
pow,a,energy,kWh,0.25,
pow,a,energy,Wh,250,
pow,a,fan,rpm,9000,
mem,a,speed,MT/s,5600,
pci,a,speed,GT/s,16,
pod,a,cpu_request,millicores,2500,
pod,a,cpu_limit,vCPU,4,
sip,a,calls,cps,800,
fwd,a,cost,cycles/packet,88,
srv,a,price,EUR/core,210,`,
		"a reduction and a slowdown by a factor, an improvement of what is less": `
aes,software,throughput,Gbps,1.2,
aes,offload,throughput,Gbps,38.4,
aes,software vs offload,throughput_slowdown,x,32,
llc,default,llc_misses,count,1200000,
llc,CAT,llc_misses,count,780000,
llc,CAT vs default,llc_misses_improvement,percent,35,
llc,CAT vs default,llc_misses_reduction,x,1.54,`,
		"round trips of nearby, of a satellite and of one host": `
leo setup,London to New York,distance,km,5570,
leo,London to New York,rtt_min,ms,44,
lan setup,switch,link_rate,Gbps,1,
lan,ping; frame=1518B,rtt_min,us,31,
lan,veth pair; frame=1518B,rtt_min,us,9,
lan,cut through; frame=1518B,latency_min,us,0.4,`,
		"objects out of a cache": `
cdn setup,edge,link_rate,Gbps,1,
cdn,browser cache,object_size,MB,2,
cdn,browser cache,latency_p50,ms,0.4,
cdn,gzip,object_size,MB,2,
cdn,gzip,latency_p50,ms,6.0,
cdn,plain,object_size,MB,2,
cdn,plain,ttfb_p50,ms,1.2,`,
		"a figure in bits and bytes": `
nas,tcp,throughput,Gbps,71.2,
nas,tcp,throughput,GB/s,8.9,
nas,rdma,throughput,Gbps,92.1,
nas,smb,throughput,Gbps,7.4,`,
		"one in bytes that is no link": `
mem,1 VM,throughput,Gbps,9.3,
mem,2 VMs,throughput,Gbps,18.5,
mem,4 VMs,throughput,Gbps,23.4,
mem,memory copy,throughput,GB/s,18.0,
start,before,startup_time,s,12.4,
start,after,startup_time,s,3.1,
start,after vs before,startup_time_improvement,percent,75,
start,after vs before,startup_time_improvement,x,4,
kpi,a,availability,percent,99.97,
kpi,a,observation period,years,3,`,
		"statistics of statistics": `
agg,5 runs,latency_p99_min,us,18,
agg,5 runs,latency_p99_max,us,25,
agg,5 runs,latency_p99_stddev,us,30,
agg,5 runs,latency_p99,us,21,
agg,5 runs,latency_p99.9,us,24,
agg,median of 5 runs,latency_p99,us,21,`,
		"more virtual CPUs than the host has": `
box setup,server,logical_cpus,count,64,
box setup,VMs,total_vcpus,count,96,
box setup,4 nodes,dedicated_cpus_total,count,240,
box setup,4 nodes,pinned_cpus,count,240,
box,cpus=128; two hosts,throughput,Gbps,18.0,
vm setup,guest,cpus,count,4,
vm setup,guest,cpu_last,cpu_id,7,`,
		"a server's counters": `
web,a,rx packets,count,1200000,
web,a,tx packets,count,3400000,
web,a,drops,count,0,
web,a,requests/s,req/s,6667,
web,a,queries,count,1200000,
web,a,duration,s,60,`,
		"jitter of a call": `
sip,a,latency_mean,ms,63.0,
sip,a,latency_p95,ms,141,
sip,a,jitter,ms,22.4,
sip,a,CPU TDP,W,205,
sip,a,duration,min,60,
sip,a,energy,Wh,411,`,
		"several NUMA nodes, and counters of some of the CPUs": `
big,2 NUMA nodes; 16 cores,throughput,Gbps,92,
big,2 NUMA nodes; 16 cores,throughput_per_core,Gbps,5.75,
big,4 isolated cpus,cpu_usage,percent,780,
l2,a,L1 hits,count,990,
l2,a,L1 misses,count,10,
l2,a,L2 hit rate,percent,80.0,`,
		"less than no gain": `
v,a,throughput,Gbps,9.0,
v,b,throughput,Gbps,9.3,
v,a vs b,throughput_gain,percent,-3.2,`,
	})
	for name, rows := range tables {
		if r := audit(t, head+strings.TrimSpace(rows)+"\n"); len(r.Findings) > 0 {
			t.Errorf("%s: %q %q", name, found(r), r.Findings[0].Sum)
		}
	}
}

// Consistent tables, made at random and rounded to random digits, have no findings.
func TestConsistent(t *testing.T) {
	for seed := range uint64(300) {
		table := consistent(rand.New(rand.NewPCG(seed, 14)), 1)
		if r := audit(t, table); len(r.Findings) > 0 {
			t.Fatalf("seed %d: %q\n%+v\n%s", seed, found(r), r.Findings[0].Sum, table)
		}
	}
}

// Several measurements of each configuration differ, which is a finding, and contradict nothing.
func TestRepeated(t *testing.T) {
	for seed := range uint64(100) {
		table := consistent(rand.New(rand.NewPCG(seed, 15)), 3)
		r := audit(t, table)
		for _, f := range r.Findings {
			if f.Rule != "repeat" || f.Severity != claims.Suspicious {
				t.Fatalf("seed %d: %q\n%+v\n%s", seed, found(r), f, table)
			}
		}
		if len(r.Findings) == 0 || !strings.HasPrefix(r.Verdict(), "there are suspicious figures") {
			t.Fatal(r.Verdict())
		}
	}
}

// A cancelled audit returns no report, even if the file does not end.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	done := make(chan error)
	go func() {
		_, readErr := AuditFile(ctx, name)
		done <- readErr
	}()
	cancel()
	if err = <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err = Audit(ctx, strings.NewReader(head+"a,b,rtt_p50,us,3,\n")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// consistent simulates loads over a link, and prints what is measured, in several runs of each configuration.
func consistent(r *rand.Rand, runs int) string {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	digits := r.IntN(4)
	add := func(scenario, config, metric, unit string, v float64, qualifier string) {
		_ = w.Write([]string{scenario, config, metric, unit, strconv.FormatFloat(v, 'f', digits, 64), qualifier})
	}
	_ = w.Write(strings.Split(strings.TrimSpace(head), ","))
	kilo := float64(10 * (1 + r.IntN(100)))
	binary := r.IntN(2) == 0
	prefix, unit := 1e3, "kB"
	if binary {
		prefix, unit = 1024, "KiB"
	}
	run := float64(30 * (1 + r.IntN(20)))
	add("setup", "workload", "object_size", unit, kilo, "")
	add("setup", "nic", "link_rate", "Gbps", 100, "")
	add("setup", "load", "test_duration", "s", run, "")
	base, quiet, bridge := 0., 0., map[string]float64{}
	for _, path := range slices.Repeat([]string{"bridge", "vf"}, runs) {
		for _, noise := range []string{"quiet", "noisy"} {
			config := fmt.Sprintf("path=%s; %s; connections=1000", path, noise)
			rate := 1000 * (1 + 9*r.Float64())
			latencies := make([]float64, 1000)
			for k := range latencies {
				latencies[k] = kilo*prefix*8/100e9*1e3 + 8*r.ExpFloat64()*r.Float64() // ms, less than 1000 in flight
			}
			latencies = append(latencies, 9)
			slices.Sort(latencies)
			mean := 0.
			for _, l := range latencies {
				mean += l / float64(len(latencies))
			}
			bytesPerSecond := rate * kilo * prefix
			add("web", config, "requests_per_s", "req/s", rate, "")
			add("web", config, "requests", "count", float64(int(rate*run)), "")
			add("web", config, "transfer", mega(binary), bytesPerSecond/prefix/prefix, "")
			add("web", config, "latency_min", "ms", latencies[0], "")
			add("web", config, "latency_p50", "us", 1000*latencies[500], "")
			add("web", config, "latency_p99", "ms", latencies[990], "")
			add("web", config, "latency_max", "ms", latencies[1000], "")
			add("web", config, "latency_mean", "ms", mean, "")
			hits := 100 * r.Float64()
			add("web", config, "hit_rate", "percent", hits, "")
			add("web", config, "miss_rate", "percent", 100-hits, "")
			add("web", config, "hits", "count", math.Round(hits*1e4), "")
			add("web", config, "misses", "count", math.Round((100-hits)*1e4), "")
			power, read, written := 100+300*r.Float64(), 90*r.Float64(), 40*r.Float64()
			add("web", config, "mean power", "W", power, "")
			add("web", config, "energy", "Wh", power*run/3600, "")
			add("web", config, "efficiency", "Gbps/W", bytesPerSecond*8/1e9/power, "")
			add("web", config, "read iops", "kIOPS", read, "")
			add("web", config, "write iops", "kIOPS", written, "")
			add("web", config, "total iops", "kIOPS", read+written, "")
			for _, state := range []string{"usr", "sys", "soft"} {
				add("web", config, "%"+state, "percent", hits/3, "")
			}
			add("web", config, "%idle", "percent", 100-hits, "")
			if path == "vf" && runs == 1 {
				add("web", config, "requests_per_s_gain_vs_bridge", "percent", 100*(rate/bridge[noise]-1), "")
			}
			bridge[noise] = rate
			if base == 0 {
				base = rate
			}
			if runs == 1 {
				add("web", config, "requests_per_s_rel_first", "percent", 100*rate/base, "")
			}
			if noise == "noisy" && runs == 1 {
				sign := map[bool]string{true: "gain", false: "loss"}[rate > quiet]
				config = fmt.Sprintf("path=%s; connections=1000; noisy vs quiet", path)
				add("web", config, "requests_per_s_"+sign, "percent", 100*math.Abs(rate/quiet-1), "")
			}
			quiet = rate
		}
	}
	w.Flush()
	return b.String()
}

func mega(binary bool) string {
	if binary {
		return "MiB/s"
	}
	return "MB/s"
}

// docs/claims.md has a row for each rule, and an example with real output.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/claims.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules() {
		if !strings.Contains(string(text), "| `"+r.id+"` | "+r.severity.String()+" |") {
			t.Errorf("docs/claims.md: no row for %s", r.id)
		}
	}
	printed, err := os.ReadFile("../testdata/published.want.txt")
	_, example, found := strings.Cut(string(text), "```\n")
	example, _, closed := strings.Cut(example, "```")
	if err != nil || !found || !closed || !strings.Contains(string(printed), example) {
		t.Errorf("docs/claims.md: the example is not what is printed: %v", err)
	}
}
