#!/bin/busybox sh
# First program of the guest: the root image, read-only, below a file system in memory.
B=/bin/busybox
$B mkdir -p /proc /sys /dev /ro /rw /new
$B mount -t devtmpfs dev /dev
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
for m in $($B cat /modules.order); do $B insmod $m; done
i=0
while [ ! -b /dev/vda ] && [ $i -lt 200 ]; do $B sleep 0.05; i=$((i+1)); done
$B mount -t ext4 -o ro,noload /dev/vda /ro || { echo "lab: no root image"; $B poweroff -f; }
$B mount -t tmpfs -o mode=755 tmpfs /rw
$B mkdir /rw/u /rw/w
$B mount -t overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w overlay /new
$B umount /sys; $B umount /proc
$B mount --move /dev /new/dev
exec $B switch_root /new /sbin/lab-init
