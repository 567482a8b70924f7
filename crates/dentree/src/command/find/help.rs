//! The help of expressions.

pub(crate) const EXPRESSION: &str = "\
Expression, as of find(1); -print is done where no action is given:
  operators    ( EXPR )   ! EXPR   -not EXPR   EXPR EXPR   EXPR -a EXPR   EXPR -and EXPR
               EXPR -o EXPR   EXPR -or EXPR   EXPR , EXPR
  options      -H -L -P (before the places)   -depth -d -mindepth N -maxdepth N -daystart -follow
               -regextype TYPE -files0-from FILE -mount -xdev
  tests        -name -iname -path -ipath -wholename -iwholename -lname -ilname PATTERN
               -regex -iregex PATTERN   -type -xtype [fdlbcps],…   -perm MODE, -MODE, /MODE
               -size N[cwbkMG]   -empty   -inum -links -uid -gid N   -user -group NAME
               -nouser -nogroup   -samefile IMAGE:PATH   -newer -anewer -cnewer FILE   -newerXY FILE
               -newermt TIME   -mtime -atime -ctime -mmin -amin -cmin -used N   -fstype TYPE
               -readable -writable -executable -context PATTERN   -true -false
  actions      -print -print0 -printf FORMAT -ls   -fprint -fprint0 -fls FILE -fprintf FILE FORMAT
               -exec -execdir COMMAND ; or COMMAND {} +   -ok -okdir COMMAND ;
               -delete -prune -quit

  N is exactly N, +N more, -N less. Names of owners are those of the image's own /etc/passwd and
  /etc/group. A FILE to compare with is one of this machine, or IMAGE:PATH.

  The command of -exec gets a copy of the file: {} is a path below a temporary directory, with the
  file's content, mode and times, which is removed when the command has ended. What the command
  changes there does not change the image. A directory is handed over empty, a link as a link;
  devices, FIFOs and sockets are not.

  -delete changes the image. -regex takes no back-references; of -regextype all are known but awk,
  gnu-awk, posix-awk and posix-minimal-basic.

  --format is done of each file for which the whole expression holds, in place of -print; -o FILE
  right behind it names the file, elsewhere -o means or. With --timeline a row is a time stamp.

Examples:
  dentree find disk.img:/etc -name '*.conf' -size +1k
  dentree find disk.img '(' -perm -4000 -o -nouser ')' -ls
  dentree find disk.img:/home -type f -newermt '2 days ago' -exec sha256sum {} +
  dentree find disk.img --columns path,size,sha256 --format parquet -o names.parquet
  dentree find disk.img --timeline | mactime -d -z UTC
  dentree find disk.img:/var/cache -type f -mtime +30 -delete
";
