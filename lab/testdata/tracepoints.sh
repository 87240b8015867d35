# Turns tracepoints of the scheduler and of interrupts on and off: sh tracepoints.sh TIMES. A guest whose kernel patches itself
# for that dies of it now and then (docs/lab.md).
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (while :; do sleep 0.001; done) & done # so that all CPUs switch
n=0
while [ $n -lt $1 ]; do
	for state in 1 0; do
		for event in sched/sched_switch sched/sched_waking irq/softirq_entry irq_vectors/local_timer_entry; do
			echo $state > /sys/kernel/tracing/events/$event/enable
		done
	done
	n=$((n + 1))
done
echo "$n times"
