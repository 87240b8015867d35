package rules

// plantedToo continues planted: machines, failures, money, windows, and statements about several rows.
func plantedToo() map[string]string {
	return map[string]string{
		"order/names as programs print them": `
YCSB,READ,95thPercentileLatency(us),us,803,
YCSB,READ,99thPercentileLatency(us),us,422>1422,
YCSB,READ,MaxLatency(us),us,91263,
YCSB,READ,Operations,count,500000,`,
		"order/percentile before its number": `
sockperf,ping-pong,percentile 50.0,us,6.011,
sockperf,ping-pong,percentile 99.9,us,5.9>12.9,`,
		"product/bitrate": `
iperf3,udp,Transfer,GB,1.75>1.25,
iperf3,udp,Bitrate,Mbits/sec,1000,
iperf3,udp,duration,s,10,`,
		"product/blocks of a condition": `
fio,randread; bs=4KiB,iops,IOPS,250112,
fio,randread; bs=4KiB,bandwidth,MiB/s,1124>977,`,
		"in-flight/concurrency": `
ab,concurrency=10,requests/s,req/s,1000,
ab,concurrency=10,mean response time,ms,50>10,
ab,concurrency=10,p99 response time,ms,90,`,
		"over-window": `
wan,1 stream,window,KiB,256,
wan,1 stream,rtt_mean,ms,40,
wan,1 stream,rtt_p99,ms,52,
wan,1 stream,throughput,Mbit/s,412>51.2,`,
		"summary": `
tcp,run 1,throughput,Gbps,9.12,
tcp,run 2,throughput,Gbps,9.31,
tcp,run 3,throughput,Gbps,9.20,
tcp,mean of 3 runs,throughput,Gbps,9.61>9.21,`,
		"summary/outside": `
tcp,run=1,latency_avg,us,31.0,
tcp,run=1,latency_p99,us,81.0,
tcp,run=2,latency_avg,us,35.0,
tcp,run=2,latency_p99,us,84.0,
tcp,average,latency_avg,us,38.0>33.1,
tcp,median,latency_p99,us,82.5,`,
		"summary/median": `
fio,trial 1,iops,kIOPS,88.1,
fio,trial 2,iops,kIOPS,91.7,
fio,trial 3,iops,kIOPS,90.2,
fio,median,iops,kIOPS,91.7>90.2,`,
		"summary/extreme": `
cyc,run=1,latency_max,us,41,
cyc,run=2,latency_max,us,67,
cyc,run=3,latency_max,us,52,
cyc,max of 3 runs,latency_max,us,52>67,
cyc setup,,duration,h,2,`,
		"averaged/not said": `
http,run 1,latency_p99,ms,11.0,
http,run 2,latency_p99,ms,31.0,
http,run 3,latency_p99,ms,14.4,
http,,latency_p99,ms,18.8>29.7,`,
		"averaged/all": `
http,stream 1,latency_p99.9,us,110,
http,stream 2,latency_p99.9,us,190,
http,stream 3,latency_p99.9,us,145,
http,stream 4,latency_p99.9,us,135,
http,overall,latency_p99.9,us,145>176,`,
		"derived/cycles": `
vpp,l3; 1 worker,cycles,count,2500000000,
vpp,l3; 1 worker,packets,count,12500000,
vpp,l3; 1 worker,cost,cycles/packet,240>200,`,
		"whole/cycles": `
dpdk setup,server,cpu_frequency,GHz,2.4,
dpdk,cores=2,packet_rate,Mpps,40.0,
dpdk,cores=2,cost,cycles/packet,180>112,`,
		"whole/time of a packet": `
xdp,cpus=1,packet_rate,Mpps,5.0,
xdp,cpus=1,time_per_packet,ns,320>190,`,
		"product/budget": `
lr setup,64B on 10G,packet_rate,Mpps,14.88,
lr setup,64B on 10G,budget_per_packet,ns,76.2>67.2,`,
		"product/ipc": `
perf,a,instructions,count,42000000000,
perf,a,cycles,count,28000000000,
perf,a,ipc,ratio,1.8>1.5,`,
		"product/TCP_RR": `
np,netperf TCP_RR,transactions_per_s,tps,25000,
np,netperf TCP_RR,latency_mean,us,61.0>40.0,
np,netperf TCP_RR,latency_p99,us,92.0,`,
		"product/MTBF": `
sla,node,mtbf,h,8000,
sla,node,mttr,h,4,
sla,node,availability,percent,99.99>99.95,`,
		"product/AFR": `
ssd,model x,mtbf,h,2000000,
ssd,model x,afr,percent,0.88>0.44,`,
		"product/failures": `
fleet,a,observation period,d,365,
fleet,a,failures,count,5,
fleet,a,mtbf,d,91>73,`,
		"product/BDP": `
wan setup,path,link_rate,Gbps,10,
wan,path,rtt,ms,20,
wan,path,bdp,MB,2.5>25,`,
		"product/calls": `
sip,a,call rate,cps,50.0,
sip,a,hold time,s,180,
sip,a,concurrent calls,count,6000>9000,`,
		"product/a year": `
tco,lane,cost_per_month,EUR,120,
tco,lane,cost_per_year,EUR,1340>1440,`,
		"product/hugepages": `
hp setup,node,hugepages,count,512,
hp setup,node,hugepage_size,MiB,2,
hp setup,node,hugepages_memory,GiB,2.0>1.0,`,
		"derived/cost": `
srv,a,price,EUR,9600,
srv,a,cores,count,48,
srv,a,price,EUR/core,240>200,`,
		"derived/power": `
pow,b,power,W,320,
pow,b,throughput,Gbps,80,
pow,b,power_cost,W/Gbps,5.0>4.0,`,
		"derived/energy": `
pow,c,power,W,210,
pow,c,requests_per_s,req/s,70000,
pow,c,energy_cost,mJ/request,5.0>3.0,`,
		"derived/rate of each core": `
ids,a,throughput,Gbps,40,
ids,a,cores,count,16,
ids,a,efficiency,Gbps/core,3.5>2.5,`,
		"derived/topology": `
host setup,node,sockets,count,2,
host setup,node,cores_per_socket,count,28,
host setup,node,threads_per_core,count,2,
host setup,node,logical_cpus,count,128>112,`,
		"derived/quota": `
pod setup,cgroup,cpu_quota,us,250000,
pod setup,cgroup,cpu_period,us,100000,
pod setup,cgroup,cpu_limit,cpus,2.0>2.5,`,
		"derived/deviation": `
rt,a,latency_mean,us,20.0,
rt,a,latency_stddev,us,5.0,
rt,a,latency_cv,percent,40>25,
rt,a,latency_p99,us,38,`,
		"derived/scaling": `
vpp,workers=1,packet_rate,Mpps,9.0,
vpp,workers=4,packet_rate,Mpps,32.4,
vpp,workers=4,scaling_efficiency,percent,97>90,`,
		"derived/speedup of several": `
mk,threads=1,build_time,s,960,
mk,threads=8,build_time,s,160,
mk,threads=8,build_time_speedup,x,7.2>6.0,`,
		"deviation/error": `
rt,a,latency_mean,us,20.0,
rt,a,latency_p99,us,38.0,
rt,a,latency_stddev,us,5.0,
rt,a,samples,count,10000,
rt,a,latency_stderr,us,0.50>0.05,`,
		"comparison/said twice": `
tail,lane vs floating,latency_p99_reduction,percent,80,
tail,lane vs floating,latency_p99_speedup,x,4.0>5.0,`,
		"comparison/gain and factor": `
web,sriov vs bridge,requests_per_s_gain,percent,150>80,
web,sriov vs bridge,requests_per_s_speedup,x,1.80,`,
		"order/first byte": `
cdn,edge,ttfb_p50,ms,31>11,
cdn,edge,response_time_p50,ms,24,
cdn,edge,response_time_p99,ms,64,`,
		"order/one way": `
ptp,a,one_way_delay_p50,us,44>20,
ptp,a,rtt_p50,us,38,
ptp,a,rtt_p99,us,61,`,
		"order/drop rates": `
mlr,64B frames,ndr,Mpps,12.4>11.1,
mlr,64B frames,pdr,Mpps,11.9,`,
		"balance/more than offered": `
fwd,load=60%,offered_load,Gbps,6.0,
fwd,load=60%,throughput,Gbps,6.6>6.0,`,
		"balance/deadlines": `
rt,hackbench,samples,count,3600000,
rt,hackbench,deadline_misses,count,36,
rt,hackbench,deadline_miss_rate,percent,0.010>0.001,`,
		"over-line/memory": `
mem setup,node,memory_speed,MT/s,3200,
mem setup,node,memory_channels,count,8,
mem,triad,memory_bandwidth,GB/s,231>171,`,
		"over-line/slot": `
nic setup,slot,pcie_speed,GT/s,8,
nic setup,slot,pcie_lanes,count,8,
nic,a,throughput,Gbps,92.0>56.0,`,
		"whole/segment": `
tcp setup,host,mtu,bytes,1500,
tcp setup,host,mss,bytes,1480>1448,`,
		"whole/NUMA": `
numa,a,local_accesses,percent,93,
numa,a,remote_accesses,percent,12>7,`,
		"whole/mix": `
fio,oltp,read_mix,percent,70,
fio,oltp,write_mix,percent,40>30,`,
		"whole/fairness": `
tcp,8 flows,jain_fairness,ratio,1.08>0.98,`,
		"whole/PUE": `
dc,hall,pue,ratio,0.92>1.12,`,
		"whole/breakdown": `
prof,function=memcpy,time_share,percent,41,
prof,function=ip_rcv,time_share,percent,38,
prof,function=nf_hook,time_share,percent,37>17,`,
		"total/stages": `
tx,stage 1,latency_mean,us,12.0,
tx,stage 1,latency_p99,us,30,
tx,stage 2,latency_mean,us,7.0,
tx,stage 2,latency_p99,us,18,
tx,stage 3,latency_mean,us,4.5,
tx,stage 3,latency_p99,us,11,
tx,total,latency_mean,us,33.5>23.5,
tx,total,latency_p99,us,44,`,
		"total/cost": `
tco,b,capex,EUR,5200,
tco,b,opex,EUR,1800,
tco,b,tco,EUR,7600>7000,`,
	}
}

// clean returns correct tables with the same words and units as plantedToo.
func clean() map[string]string {
	return map[string]string{
		"a mean of runs that is rounded, and one of other runs": `
tcp,run 1,throughput,Gbps,9.12,
tcp,run 2,throughput,Gbps,9.31,
tcp,mean of 2 runs,throughput,Gbps,9.2,
udp,run 1,throughput,Gbps,5.0,
udp,run 2,throughput,Gbps,5.4,
udp,average of 10 runs,throughput,Gbps,5.9,`,
		"a mean over unequal parts": `
web,client 1,latency_avg,ms,1.0,
web,client 1,latency_p99,ms,4.0,
web,client 2,latency_avg,ms,9.0,
web,client 2,latency_p99,ms,22.0,
web,average,latency_avg,ms,2.1,
web,overall,latency_p99,ms,19.3,`,
		"the worst of some runs that are not all listed": `
cyc,run=1,latency_max,us,41,
cyc,run=4,latency_max,us,67,
cyc,max,latency_max,us,88,
cyc setup,,duration,h,2,`,
		"a rate that all have together": `
vm,vm 1,requests_per_s,req/s,1000,
vm,vm 2,requests_per_s,req/s,1200,
vm,combined,requests_per_s,req/s,2200,
vm,run=1; a,requests,count,500,
vm,run=2; a,requests,count,510,
vm,overall; a,requests,count,1010,`,
		"cycles with turbo, and of busy polls": `
dpdk setup,server: turbo on,cpu_frequency,GHz,2.4,
dpdk,turbo; cores=1,packet_rate,Mpps,20.0,
dpdk,turbo; cores=1,cost,cycles/packet,150,
poll setup,server,cpu_frequency,GHz,2.0,
poll,cores=4,packet_rate,Mpps,20.0,
poll,cores=4,cost,cycles/packet,88,`,
		"cycles of one packet beside the clock of memory": `
m setup,server,memory_frequency,MHz,3200,
m,4 cores,packet_rate,Mpps,30.0,
m,4 cores,cost,cycles/packet,300,
m,a,cycles_per_byte,cycles/byte,2.1,`,
		"a budget of several cores": `
lr,4 cores,packet_rate,Mpps,14.88,
lr,4 cores,budget_per_packet,ns,268.8,`,
		"requests in a burst, and latencies of other tools": `
np,TCP_RR; connections=16,transactions_per_s,tps,200000,
np,TCP_RR; connections=16,latency_mean,us,80.0,
np,TCP_RR; connections=16,latency_p99,us,140,
ab,open loop,requests_per_s,req/s,25000,
ab,open loop,latency_mean,us,300,
ab,open loop,latency_p99,us,900,
np,TCP_RR; about,transactions_per_s,tps,25000,approx
np,TCP_RR; about,latency_mean,us,41.5,approx
np,TCP_RR; about,latency_p99,us,80,`,
		"availability by another meaning of MTBF": `
sla,node,mtbf,h,100,
sla,node,mttr,h,4.0,
sla,node,availability,percent,96.0,
sla,node b,mtbf,h,100,
sla,node b,mttr,h,4.0,
sla,node b,availability,percent,96.2,
sla,node c,mtbf,years,3,
sla,node c,mttr,min,30,
sla,node c,availability,percent,99.998,`,
		"failures of a fleet": `
fleet,a,observation period,d,365,
fleet,a,devices,count,1000,
fleet,a,failures,count,8,
fleet,a,mtbf,h,1095000,
fleet,a,afr,percent,0.80,`,
		"windows that grow, and several streams": `
wan,streams=8,window,KiB,256,
wan,streams=8,rtt_mean,ms,40,
wan,streams=8,rtt_p99,ms,52,
wan,streams=8,throughput,Mbit/s,405,
lan,1 stream,window,MiB,6,
lan,1 stream,rtt_p50,ms,0.2,
lan,1 stream,rtt_p99,ms,0.5,
lan,1 stream,throughput,Gbit/s,9.41,`,
		"a product of the link, and one of what was carried": `
wan setup,path,link_rate,Gbps,10,
wan,path,rtt,ms,20,
wan,path,throughput,Gbps,7.5,
wan,path,bdp,MB,25,
wan,other,rtt,ms,20,
wan,other,throughput,Gbps,7.5,
wan,other,bdp,MB,18.8,`,
		"prices of different things": `
srv,a,price,EUR,9600,
srv,a,cores,count,48,
srv,a,cores_used,count,40,
srv,a,price,EUR/core,240,
srv,b,price,USD,9600,
srv,b,cores,count,48,
srv,b,price,EUR/core,184,
srv,c,marginal_cost,EUR/core,80,
srv,c,price,EUR,9600,
srv,c,cores,count,48,
srv,d,cost_per_month,EUR,120,
srv,d,cost_per_year,EUR,1440,
srv,d,capex,EUR,3000,
srv,d,total_cost,EUR,4440,`,
		"power of a peak, and energy of each": `
pow,b,power_max,W,320,
pow,b,throughput,Gbps,80,
pow,b,power_cost,W/Gbps,3.1,
pow,c,power,W,210,
pow,c,requests_per_s,kreq/s,70,
pow,c,energy_cost,mJ/request,3.0,
pow,d,power,W,100,
pow,d,throughput,Gbit/s,50,
pow,d,energy_cost,nJ/bit,2.0,`,
		"a topology without SMT, and with cores of two kinds": `
host setup,node,sockets,count,2,
host setup,node,cores_per_socket,count,28,
host setup,node,threads_per_core,count,1,
host setup,node,logical_cpus,count,56,
lap,hybrid,cores,count,14,
lap,hybrid,threads,count,20,`,
		"limits in percent and as a quota": `
pod,a,cpu_quota,ms,50,
pod,a,cpu_period,ms,100,
pod,a,cpu_limit,percent,50,
pod,b,cpu_quota,us,150000,
pod,b,cpu_period,us,100000,
pod,b,cpu_limit,millicores,1500,`,
		"what scales better than its number, and with another base": `
vpp,workers=1,packet_rate,Mpps,9.0,
vpp,workers=4,packet_rate,Mpps,37.0,
vpp,workers=4,scaling_efficiency,percent,103,
db,nodes=3,ops_rate,ops/s,9000,
db,nodes=6,ops_rate,ops/s,16200,
db,nodes=6,scaling_efficiency,percent,90,
mk,threads=1,build_time,s,960,
mk,threads=8,build_time,s,160,
mk,threads=8,build_time_speedup,x,6.0,`,
		"errors of means of runs": `
rt,samples=100000; runs=5,latency_mean,us,20.0,
rt,samples=100000; runs=5,latency_p99,us,38.0,
rt,samples=100000; runs=5,latency_stddev,us,5.0,
rt,samples=100000; runs=5,latency_stderr,us,2.2,
rt,samples=100000; runs=5,latency_cv,percent,25,`,
		"gains and factors of different statistics": `
tail,lane vs floating,latency_p99_reduction,percent,80,
tail,lane vs floating,latency_p50_speedup,x,1.4,
tail,lane vs floating,latency_p99.9_reduction,x,6.1,
tail,lane vs floating,latency_p99.9_speedup,x,6.1,
web,sriov vs bridge,requests_per_s_gain,percent,79,approx
web,sriov vs bridge,requests_per_s_speedup,x,1.8,`,
		"first bytes of another percentile, and ways that are not the same": `
cdn,edge,ttfb_p99,ms,61,
cdn,edge,response_time_p50,ms,24,
cdn,edge,response_time_p99,ms,64,
ptp,a,one_way_delay_p99,us,40,
ptp,a,rtt_p50,us,38,
ptp,a,rtt_p99,us,61,
mlr,64B frames,ndr,Gbps,7.0,
mlr,64B frames,pdr,Mpps,11.9,
mlr,1518B frames,ndr,Mpps,0.81,
mlr,1518B frames,pdr,Mpps,0.81,`,
		"more than offered, by frames, tunnels and copies": `
fwd,vxlan,offered_load,Gbps,6.0,
fwd,vxlan,throughput,Gbps,6.6,
fwd,mirrored,offered_load,Gbps,3.0,
fwd,mirrored,throughput,Gbps,6.0,
fwd,plain,offered_load,Gbps,6.00,
fwd,plain,throughput,Gbps,6.04,`,
		"deadlines and misses of a cache": `
rt,a,samples,count,3600000,
rt,a,deadline_misses,count,36,
rt,a,llc_miss_rate,percent,12,
rt,a,deadline_miss_rate,ppm,10,`,
		"memory of two sockets and slots of both ways": `
mem setup,node,memory_speed,MT/s,3200,
mem setup,node,memory_channels,count,8,
mem setup,node,sockets,count,2,
mem,triad,memory_bandwidth,GB/s,331,
mem,copy in L3,cache_bandwidth,GB/s,900,
nic setup,slot,pcie_speed,GT/s,8,
nic setup,slot,pcie_lanes,count,8,
nic,rx+tx,throughput,Gbps,92.0,`,
		"headers of options, and of jumbo frames": `
tcp setup,host,mtu,bytes,1500,
tcp setup,host,mss,bytes,1460,
gro setup,host,mtu,bytes,9000,
gro setup,host,mss,bytes,8960,`,
		"hit rates of reads and writes": `
c,a,read_hit_rate,percent,91,
c,a,write_hit_rate,percent,80,
c,a,local_hit_rate,percent,70,
c,a,remote_hit_rate,percent,60,
c,b,read_share,percent,66.7,
c,b,write_share,percent,33.4,`,
		"shares that overlap, grow or are of different wholes": `
prof,function=main; inclusive,time_share,percent,100,
prof,function=poll; inclusive,time_share,percent,88,
prof,function=rx; inclusive,time_share,percent,61,
lat,cpus=1,softirq_time_share,percent,40,
lat,cpus=2,softirq_time_share,percent,45,
lat,cpus=4,softirq_time_share,percent,50,
dist,below 10 us,share,percent,50,
dist,below 20 us,share,percent,80,
dist,below 40 us,share,percent,99,
idle,state=C0,residency,percent,33.4,
idle,state=C1,residency,percent,33.4,
idle,state=C6,residency,percent,33.4,`,
		"stages at once, percentiles of stages, and a pipeline's rate": `
tx,stage 1,latency_p99,us,12.0,
tx,stage 2,latency_p99,us,7.0,
tx,total,latency_p99,us,15.5,
pipe,stage 1,packet_rate,Mpps,9.0,
pipe,stage 2,packet_rate,Mpps,8.0,
pipe,total,packet_rate,Mpps,8.0,
boot,stage=kernel,boot_time,s,1.2,
boot,stage=user,boot_time,s,3.4,
boot,total,boot_time,s,5.1,`,
		"calls that ramp up, and other frequencies": `
sip,a,call rate,cps,50.0,
sip,a,hold time,s,180,approx
sip,a,concurrent calls,count,9100,
hp setup,node,hugepages,count,1024,
hp setup,node,hugepage_size,kB,2048,
hp setup,node,hugepages_memory,GiB,2.0,
perf,a,instructions,count,42000000000,
perf,a,cycles,count,28000000000,
perf,a,ipc,ratio,1.5,
dc,hall,pue,ratio,1.00,`,
		"latencies of requests, first packets and handshakes": `
app,a,latency_p50,us,210,
app,a,latency_p99,us,900,
app,a,rtt_p50,us,40,
app,a,rtt_p99,us,61,
app,a,first_packet_latency_p50,us,300,
app,a,handshake_p50,ms,12,
app,a,ttfb_p50,us,190,
srv,a,rx_rate,Mpps,5.0,
srv,a,tx_rate,Mpps,2.0,
rtr,a,packet_rate_received,Mpps,9.0,`,
		"a limit that is called max, and slots of several cards": `
lim,port 1,throughput,Gbps,9.0,
lim,port 2,throughput,Gbps,9.3,
lim,max,throughput,Gbps,10.0,
slot setup,nic,pcie_speed,GT/s,8,
slot setup,nic,pcie_lanes,count,8,
slot setup,nic: 2 ports,link_rate,Gbps,50,
slot,both ports,throughput,Gbps,88,
slot,veth,throughput,Gbps,90,
weak,nodes=1; weak scaling,run_time,s,100,
weak,nodes=4; weak scaling,run_time,s,104,
weak,nodes=4; weak scaling,scaling_efficiency,percent,96,`,
		"less in percent, and in percentage points": `
web,before,cpu_usage,percent,92,
web,after,cpu_usage,percent,61,
web,after vs before,cpu_usage_reduction,percent,34,
web,after vs before,cpu_usage_reduction,pp,31,`,
		"what sockperf and sysbench print": `
sockperf,ping-pong,observations,count,812345,
sockperf,ping-pong,avg-latency,us,6.121,
sockperf,ping-pong,percentile 99.9,us,12.9,
sockperf,ping-pong,MAX observation,us,77.1,
sysbench,threads=16,transactions,count,121213,
sysbench,threads=16,queries,count,2424260,
sysbench,threads=16,latency avg,ms,7.92,
sysbench,threads=16,latency max,ms,88.30,`,
		"power of a table that names the link only": `
pow setup,nic,link_rate,Gbps,100,
pow,a,power,W,320,
pow,a,power_cost,W/Gbps,4.0,
pow,b,cycles_idle,count,5000,
pow,b,packets,count,100,
pow,b,cost,cycles/packet,210,
pow,c,cycles,count,21000,
pow,c,packets_lost,count,3,
pow,c,cost,cycles/packet,210,`,
	}
}
