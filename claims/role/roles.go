package role

import (
	"maps"

	"isolane.dev/isolane/claims/row"
)

// Words of metrics, separated by spaces.
const (
	failedWords  = "error errors failed timeout timeouts lost dropped missed offered target"
	notArrived   = "lost loss dropped drop drops missed error errors failed " + resentWords
	copies       = "duplicates duplicate duplicated dups"
	resentWords  = "retransmitted retransmits retransmission retransmissions retries resent"
	packetWords  = "packets packet pkt pkts pps kpps mpps frame frames"
	requestWords = "req reqs request requests rps krps qps responses"
	Counted      = "hits misses drops dropped lost errors failed packets frames requests responses events " +
		"transactions queries operations ops interrupts switches migrations cycles instructions sent received"
	Moved    = "transfer throughput goodput bandwidth traffic"
	notMoved = "link nic port interface line memory disk storage cache pcie rel aggregate total offered " +
		bothWays
	bothWays    = "bidirectional bidir duplex"
	notOnTheWay = "jitter variation wakeup scheduling queue queueing processing interrupt service"
)

// All returns the names in formulas.
func All() map[string]*Role {
	counts, durations := []row.Dimension{row.Count}, []row.Dimension{row.Duration}
	shares, bitRates := []row.Dimension{row.Share}, []row.Dimension{row.BitRate}
	rates, sizes := []row.Dimension{row.Rate}, []row.Dimension{row.Size}
	const loops = "samples loops iterations cycles activations"
	all := map[string]*Role{
		"request_rate": {Dims: rates, Words: requestWords, Not: failedWords},
		"packet_rate":  {Dims: rates, Words: packetWords, Not: failedWords},
		"iops":         {Dims: rates, Words: "iops kiops io reads writes", Not: failedWords},
		"object": {Dims: sizes, Words: "object file response body payload message reply", Not: "total",
			Nominal: true},
		"packet": {Dims: sizes, Words: "packet pkt", Nominal: true, Settings: "packet,packet size,pkt,pkt size"},
		"frame":  {Dims: sizes, Words: "frame", Nominal: true, Settings: "frame,frame size"},
		"block":  {Dims: sizes, Words: "block bs", Nominal: true, Settings: "bs,block,block size"},
		"moved":  {Dims: []row.Dimension{row.SizeRate, row.BitRate}, Words: Moved, Not: notMoved},
		"moved_both": {Dims: []row.Dimension{row.SizeRate, row.BitRate}, Words: bothWays,
			Not: "link nic port interface line rel"},
		"workers":     {Dims: counts, Words: "threads", Only: "measuring", Settings: "threads"},
		"moved_bytes": {Dims: []row.Dimension{row.SizeRate}, Words: Moved, Not: notMoved},
		"moved_bits":  {Dims: bitRates, Words: Moved, Not: notMoved},
		"stated_bits": {Dims: bitRates, Words: Moved, Not: notMoved, Asked: true,
			Stats: []string{"", "mean", "max"}},
		"stored": {Dims: []row.Dimension{row.SizeRate}, Words: Moved + " disk"},
		"volume": {Dims: sizes, Words: "total transferred transfer volume"},
		"run": {Dims: durations, Words: "duration runtime elapsed",
			Settings: "duration,test duration,run duration,runtime,run time,test time"},
		"interval": {Dims: durations, Words: "interval period", Not: "kill stop restart report reporting log",
			Nominal: true},
		"loops":   {Dims: counts, Words: loops, Not: failedWords, Nominal: true},
		"samples": {Dims: counts, Words: loops + " requests measurements observations", Not: failedWords},
		"sampled": {Dims: counts, Words: "packets pkts frames datagrams", Settings: "samples,packets,loops",
			Only: "sent transmitted received tx rx total number of count measured"},
		"requests": {Dims: counts, Words: "requests responses", Not: failedWords},
		"packets":  {Dims: counts, Words: packetWords, Not: failedWords},
		"reduced": {Dims: shares, Words: "reduction decrease saving savings", Asked: true, Change: true,
			Stats: []string{"", "min", "mean", "percentile", "max"}},
		"part": {Dims: shares, Words: "hit miss success failure availability coverage " +
			"fairness jain correlation r2 residency", Not: "rel over"},
		"hit":  {Dims: shares, Words: "hit success", Not: "rel over ratio"},
		"miss": {Dims: shares, Words: "miss failure", Not: "rel over ratio"},
		"cpu_use": {Dims: shares, Words: "cpu cpus", Not: "rel over per client host total system steal " +
			row.ChangeWords},
		"cpus":        {Dims: counts, Words: "cpus", Only: "as written per cpu socket", Settings: "cpus"},
		"connections": {Dims: counts, Words: "connections concurrency", Settings: "connections,concurrency"},
		"cores":       {Dims: counts, Words: "cores", Only: "as written per cpu socket"},
		"threads":     {Dims: counts, Words: "threads", Only: "as written per cpu socket"},
		"links": {Dims: counts, Words: "link links port ports nic nics interface interfaces uplinks slaves",
			Only: "count number num of n total used active bond bonded per host server node dut card each"},
		"link": {Dims: bitRates, Words: "link nic port interface line", Not: Moved, Asked: true,
			Nominal: true, Fastest: true},
	}
	for _, more := range []map[string]*Role{balances(), statistics(), parts(), places(), machines(), others()} {
		maps.Copy(all, more)
	}
	for name, words := range Events() {
		all[name+"_rate"] = &Role{Dims: rates, Words: words, Not: failedWords}
		all[name] = &Role{Dims: counts, Words: words, Not: failedWords}
	}
	return all
}

// Events returns other things that are counted and have a rate.
func Events() map[string]string {
	return map[string]string{"transactions": "transaction transactions tps ktps",
		"queries": "query queries qps kqps", "operations": "operations op ops kops"}
}

// balances returns the names of what was sent and requested, and of what became of it.
func balances() map[string]*Role {
	counts, rates, shares := []row.Dimension{row.Count}, []row.Dimension{row.Rate}, []row.Dimension{row.Share}
	return map[string]*Role{
		"sent":         {Dims: counts, Words: "sent transmitted", Not: notArrived},
		"received":     {Dims: counts, Words: "received delivered", Not: notArrived + " " + copies},
		"duplicates":   {Dims: counts, Words: copies},
		"lost":         {Dims: counts, Words: "lost loss dropped", Change: true},
		"lost_share":   {Dims: shares, Words: "lost loss dropped", Not: Moved + " rel", Change: true},
		"failed":       {Dims: counts, Words: "error errors failed failures"},
		"failed_share": {Dims: shares, Words: "error errors failed failures", Not: "rel over"},
		"probes": {Dims: counts, Words: "packets pkts frames datagrams",
			Only: "sent transmitted total number of count measured"},
		"resent":        {Dims: counts, Words: resentWords},
		"resent_share":  {Dims: shares, Words: resentWords, Not: "rel over"},
		"hits":          {Dims: counts, Words: "hits"},
		"misses":        {Dims: counts, Words: "misses"},
		"hit_rate":      {Dims: shares, Words: "hit hits", Not: "rel over byte bytes"},
		"miss_rate":     {Dims: shares, Words: "miss misses", Not: "rel over byte bytes"},
		"tx_count":      {Dims: counts, Words: "tx", Not: notArrived},
		"rx_count":      {Dims: counts, Words: "rx", Not: notArrived},
		"sent_rate":     {Dims: rates, Words: "tx sent transmitted offered", Not: notArrived},
		"received_rate": {Dims: rates, Words: "rx received delivered forwarded", Not: notArrived},
		"lost_rate": {Dims: rates, Words: "lost loss dropped drop drops", Change: true,
			Only: "packet packets frames rate total"},
	}
}

// statistics returns the names of times and of their statistics.
func statistics() map[string]*Role {
	const delays = "latency rtt delay ping owd"
	durations := []row.Dimension{row.Duration}
	amounts := []row.Dimension{row.Count, row.Duration, row.Rate, row.Size, row.Bits, row.SizeRate, row.BitRate,
		row.Power, row.Energy}
	return map[string]*Role{
		"latency_mean": {Dims: durations, Words: row.LatencyWords, Stats: []string{"mean"}},
		"latency": {Dims: durations, Words: row.LatencyWords, Not: "first ttfb connect",
			Stats: []string{"min", "mean", "percentile", "max"}},
		"percentile_time": {Dims: durations, Words: row.LatencyWords, Stats: []string{"percentile"}},
		"min":             {Dims: amounts, Stats: []string{"min"}},
		"max":             {Dims: amounts, Stats: []string{"max"}},
		"mean":            {Dims: amounts, Stats: []string{"mean"}},
		"deviation":       {Dims: amounts, Stats: []string{"deviation"}},
		"percentile":      {Dims: amounts, Stats: []string{"percentile"}},
		"jitter": {Dims: durations, Words: "jitter pdv ipdv variation",
			Stats: []string{"", "mean", "percentile", "max"}},
		"delay_min": {Dims: durations, Words: delays, Not: "jitter variation", Stats: []string{"min"}},
		"delay_max": {Dims: durations, Words: delays, Not: "jitter variation", Stats: []string{"max"}},
	}
}

// parts returns the names of parts that add up, and of their wholes.
func parts() map[string]*Role {
	shares, rates := []row.Dimension{row.Share}, []row.Dimension{row.SizeRate, row.BitRate}
	amounts := []row.Dimension{row.Count, row.Rate, row.Size, row.SizeRate, row.BitRate}
	return map[string]*Role{
		"goodput":    {Dims: rates, Words: "goodput"},
		"bitrate":    {Dims: rates, Words: "bitrate", Only: "mean sender receiver"},
		"throughput": {Dims: rates, Words: "throughput bandwidth", Not: notMoved},
		"upward":     {Dims: amounts, Words: "up upload uplink upstream tx ul"},
		"read":       {Dims: amounts, Words: "read reads"},
		"written":    {Dims: amounts, Words: "write writes written"},
		"downward":   {Dims: amounts, Words: "down download downlink downstream rx dl"},
		"all_ways": {Dims: amounts, Not: bothWays,
			Words: "total aggregate sum combined ul+dl dl+ul up+down down+up tx+rx rx+tx"},
		"nice":    {Dims: shares, Words: "nice", Not: "rel over guest"},
		"guest":   {Dims: shares, Words: "guest guests", Not: "rel over nice"},
		"gnice":   {Dims: shares, Words: "gnice", Not: "rel over"},
		"iowait":  {Dims: shares, Words: "iowait wa", Not: "rel over"},
		"irq":     {Dims: shares, Words: "irq hardirq hi", Not: "rel over"},
		"softirq": {Dims: shares, Words: "softirq soft si", Not: "rel over"},
		"steal":   {Dims: shares, Words: "steal st stolen", Not: "rel over"},
		"user":    {Dims: shares, Words: "user usr", Not: "rel over"},
		"system":  {Dims: shares, Words: "system sys", Not: "rel over"},
		"idle":    {Dims: shares, Words: "idle", Not: "rel over"},
		"busy":    {Dims: shares, Words: "busy used utilization utilisation usage", Not: "rel over"},
		"link_use": {Dims: shares, Words: "utilization utilisation usage",
			Only: "link nic port interface line rate"},
	}
}

// places returns the names of CPUs, of distances and of power.
func places() map[string]*Role {
	counts, durations := []row.Dimension{row.Count}, []row.Dimension{row.Duration}
	lengths := []row.Dimension{row.Length}
	whatever := []string{"", "min", "mean", "percentile", "max"}
	const cpus = "cpus cpu cores core vcpus vcpu pcpus threads count number of host"
	return map[string]*Role{
		"taken":        {Dims: counts, Words: "isolated isolcpus pinned dedicated housekeeping", Only: cpus},
		"isolated":     {Dims: counts, Words: "isolated isolcpus", Only: cpus},
		"housekeeping": {Dims: counts, Words: "housekeeping", Only: cpus},
		"cpu_at":       {Dims: []row.Dimension{row.ID}, Words: "cpu cpus core affinity", Asked: true},
		"host_cpus": {Dims: counts, Words: "cpus threads hyperthreads processors",
			Only: "logical hardware online total number of count host server", Fastest: true},
		"distance": {Dims: lengths, Not: "fibre fiber"},
		"fibre":    {Dims: lengths, Words: "fibre fiber", Not: "hollow"},
		"one_way": {Dims: durations, Words: "latency delay owd", Stats: whatever,
			Not: notOnTheWay + " rtt ping round"},
		"round_trip": {Dims: durations, Words: "rtt ping roundtrip round", Not: notOnTheWay, Stats: whatever},
		"fetch": {Dims: durations, Words: "latency response", Stats: whatever,
			Not: notOnTheWay + " rtt first byte ttfb connect dns tls handshake"},
		"message": {Dims: []row.Dimension{row.Size}, Words: "frame packet message payload", Nominal: true,
			Stats:    []string{""},
			Settings: "frame,frame size,packet,packet size,message,message size,payload,payload size"},
		"power":     {Dims: []row.Dimension{row.Power}, Not: "rated tdp idle peak limit cap"},
		"energy":    {Dims: []row.Dimension{row.Energy}, Not: "rel"},
		"per_power": {Dims: []row.Dimension{row.PerPower}},
		"downtime":  {Dims: durations, Words: "downtime"},
		"available": {Dims: []row.Dimension{row.Share}, Words: "availability uptime"},
		"observed":  {Dims: durations, Words: "period duration observation"},
	}
}

// machines returns the names of what CPUs, memory and cards have and do.
func machines() map[string]*Role {
	counts, durations := []row.Dimension{row.Count}, []row.Dimension{row.Duration}
	sizes := []row.Dimension{row.Size}
	shares, other := []row.Dimension{row.Share}, []row.Dimension{row.Other}
	const number = "count number of per cpu total"
	const mix, accesses = "mix share ratio of io ops", "numa memory access accesses share node traffic pages"
	return map[string]*Role{
		"clock": {Dims: []row.Dimension{row.Frequency}, Words: "frequency clock freq ghz tsc speed cpu",
			Not: "memory uncore timer ddr ram turbo boost max"},
		"used": {Dims: counts, Words: "cpus cores workers lcores pmds", Only: "worker used data plane pmd",
			Settings: "cpus,cores,workers,lcores,pmds"},
		"packet_cycles": {Dims: []row.Dimension{row.Other, row.Count}, Words: "cycles", Each: "packet pkt frame"},
		"packet_time": {Dims: durations, Words: "time cost cpu work", Not: row.LatencyWords,
			Each: "packet pkt frame"},
		"budget":       {Dims: durations, Words: "budget", Not: row.LatencyWords, Each: "packet pkt frame"},
		"ipc":          {Dims: []row.Dimension{row.Share, row.Count, row.Other}, Words: "ipc"},
		"instructions": {Dims: counts, Words: "instructions", Only: "total retired count"},
		"cycles":       {Dims: counts, Words: "cycles", Only: "total cpu unhalted count"},
		"transfers":    {Dims: other, Words: "mt"},
		"channels":     {Dims: counts, Words: "channels", Only: "memory ddr dimm populated " + number},
		"memory": {Dims: []row.Dimension{row.SizeRate}, Words: "memory dram ddr ram stream",
			Not: "cache rel llc l3"},
		"pcie":         {Dims: other, Words: "gt"},
		"lanes":        {Dims: counts, Words: "lanes", Only: "pcie slot width nic " + number, Settings: "lanes"},
		"logical":      {Dims: counts, Words: "logical", Only: "cpus cpu threads processors host server " + number},
		"sockets":      {Dims: counts, Words: "sockets", Only: number},
		"socket_cores": {Dims: counts, Words: "cores", Each: "socket package cpu processor"},
		"core_threads": {Dims: counts, Words: "threads", Each: "core"},
		"pages":        {Dims: counts, Words: "hugepages pages", Only: "huge 1g 2m reserved " + number},
		"page":         {Dims: sizes, Words: "hugepage page", Only: "huge size", Nominal: true},
		"reserved":     {Dims: sizes, Words: "hugepages hugepage", Only: "memory reserved total huge pages"},
		"quota":        {Dims: durations, Words: "quota", Only: "cpu cfs"},
		"quota_period": {Dims: durations, Words: "period", Only: "cpu cfs quota", Nominal: true},
		"cpu_limit":    {Dims: []row.Dimension{row.Count, row.Share}, Words: "limit", Only: "cpu cpus cores"},
		"mtu":          {Dims: sizes, Words: "mtu", Settings: "mtu", Nominal: true},
		"mss":          {Dims: sizes, Words: "mss", Nominal: true},
		"local":        {Dims: shares, Words: "local", Only: accesses},
		"remote":       {Dims: shares, Words: "remote", Only: accesses},
		"read_part":    {Dims: shares, Words: "read reads", Only: mix},
		"write_part":   {Dims: shares, Words: "write writes", Only: mix},
	}
}

// others returns the names of failures and money, of windows, and of things that are said twice.
func others() map[string]*Role {
	counts, durations := []row.Dimension{row.Count}, []row.Dimension{row.Duration}
	sizes := []row.Dimension{row.Size}
	shares, other := []row.Dimension{row.Share}, []row.Dimension{row.Other}
	rates, moved := []row.Dimension{row.Rate}, []row.Dimension{row.SizeRate, row.BitRate}
	loads := []row.Dimension{row.Rate, row.SizeRate, row.BitRate}
	whatever := []string{"", "min", "mean", "percentile", "max"}
	const calls, number = "calls sessions connections flows", "number of count total"
	const money = "cost costs price energy power opex total tco per of"
	return map[string]*Role{
		"mtbf":         {Dims: durations, Words: "mtbf mttf"},
		"mttr":         {Dims: durations, Words: "mttr"},
		"failures":     {Dims: counts, Words: "failures outages", Only: number},
		"devices":      {Dims: counts, Words: "devices units nodes hosts servers drives", Only: number},
		"yearly_fails": {Dims: shares, Words: "afr annualized annualised"},
		"round_rate":   {Dims: rates, Words: "transaction transactions tps rr " + requestWords, Not: failedWords},
		"bdp":          {Dims: sizes, Words: "bdp product"},
		"window":       {Dims: sizes, Words: "window cwnd rwnd", Settings: "window"},
		"streams":      {Dims: counts, Words: "streams flows connections", Settings: "streams,flows,connections"},
		"cv":           {Dims: shares, Words: "cv cov rsd"},
		"stderr":       {Dims: append(durations, loads...), Words: "stderr sem"},
		"runs":         {Dims: counts, Words: "runs repetitions trials", Settings: "runs,repetitions,trials"},
		"pue":          {Dims: []row.Dimension{row.Share, row.Count}, Words: "pue"},
		"speedup":      {Dims: shares, Words: "speedup faster", Asked: true, Change: true, Stats: whatever},
		"gain": {Dims: shares, Words: "gain increase", Not: "loss reduction decrease", Asked: true, Change: true,
			Stats: whatever},
		"way_back":     {Dims: durations, Words: "rtt ping roundtrip round", Not: notOnTheWay},
		"first_byte":   {Dims: durations, Words: "ttfb byte", Stats: whatever},
		"owd":          {Dims: durations, Words: "owd oneway way", Not: "two jitter variation", Stats: whatever},
		"offered_rate": {Dims: rates, Words: "offered", Not: notArrived},
		"carried_rate": {Dims: rates, Words: "received delivered forwarded carried achieved", Not: notArrived},
		"offered_load": {Dims: moved, Words: "offered", Only: "load rate traffic " + Moved},
		"ndr":          {Dims: loads, Words: "ndr", Stats: []string{""}},
		"pdr":          {Dims: loads, Words: "pdr", Stats: []string{""}},
		"late":         {Dims: counts, Words: "missed late overruns deadline", Not: "cache llc tlb branch"},
		"late_share":   {Dims: shares, Words: "missed late overruns deadline", Not: "rel cache llc tlb branch hit"},
		"begun":        {Dims: rates, Words: calls + " call cps", Not: failedWords + " concurrent"},
		"hold":         {Dims: durations, Words: "hold holding", Only: "call session connection flow time"},
		"concurrent":   {Dims: counts, Words: "concurrent simultaneous", Only: calls},
		"monthly":      {Dims: other, Words: "month monthly", Only: money},
		"yearly":       {Dims: other, Words: "year yearly annual annually", Only: money},
		"capex":        {Dims: other, Words: "capex", Only: "cost"},
		"opex":         {Dims: other, Words: "opex", Only: "cost"},
		"tco":          {Dims: other, Words: "tco total", Only: "cost costs of ownership"},
	}
}
