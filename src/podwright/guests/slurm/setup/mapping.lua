local hosts = {
@HOSTS@
}
-- Devices that an allocation of a cluster may have: these, or a multiple of whole.
local sizes = {
@SIZES@
}

local function ours(licences)
   for _, name in ipairs(licence_names(licences)) do
      if string.find(name, "^podwright_") then return name end
   end
end

-- Does a submitted job have devices?
local function has_devices(job)
   return ours(job.licenses) ~= nil
end

-- The names in n[1-4,7],login.
local function expand(list)
   local out = {}
   for prefix, ranges in string.gmatch(list .. ",", "([^,%[%]]*)(%b[]),") do
      for first, dash, last in string.gmatch(string.sub(ranges, 2, -2), "(%d+)(%-?)(%d*)") do
         local width = #first
         for k = tonumber(first), tonumber(dash == "-" and last or first) do
            out[#out + 1] = prefix .. string.format("%0" .. width .. "d", k)
         end
      end
   end
   for name in string.gmatch(string.gsub(list, "[^,%[%]]*%b[]", ""), "[^,]+") do
      out[#out + 1] = name
   end
   return out
end

local function legal(cluster, devices)
   local known = sizes[cluster]
   for _, size in ipairs(known) do if size == devices then return true end end
   return devices % known.whole == 0
end

local function allowed(cluster)
   return table.concat(sizes[cluster], ", ") .. ", or a multiple of " .. sizes[cluster].whole
end

-- The mapped hosts of the Slurm partitions that a job may run in; and whether others are in them.
local function within(jd, parts)
   local names, found, others = {}, {}, false
   for name in string.gmatch(jd.partition or "", "[^,]+") do names[name] = true end
   for name, part in pairs(parts) do
      local wanted = names[name] or (next(names) == nil and part.flag_default == 1)
      if wanted then
         for _, host in ipairs(expand(part.nodes or "")) do
            if hosts[host] then found[host] = hosts[host] else others = true end
         end
      end
   end
   return found, others
end

-- Why these hosts' machines are no allocation; nil: they are.
local function problem(list)
   local cluster, devices, count = nil, 0, 0
   for _, host in ipairs(list) do
      local one = hosts[host]
      if one then
         if cluster and cluster ~= one.cluster then
            return string.format("the machines of %s are in different clusters, %s and %s",
               table.concat(list, ","), cluster, one.cluster)
         end
         cluster, devices, count = one.cluster, devices + one.devices, count + 1
      end
   end
   if cluster and not legal(cluster, devices) then
      return string.format("%d hosts have %d devices, and an allocation has %s", count, devices, allowed(cluster))
   end
end

-- Every number of hosts that Slurm may choose must be one that makes an allocation.
local function counted(found, least, most)
   local cluster, devices
   for _, one in pairs(found) do
      if cluster and cluster ~= one.cluster and most > 1 then
         return "their hosts' machines are in different clusters; name hosts of one with -w"
      end
      if devices and devices ~= one.devices and most > 1 then return nil end
      cluster, devices = one.cluster, one.devices
   end
   for count = least, most do
      if not legal(cluster, count * devices) then
         return string.format("%d hosts have %d devices, and an allocation has %s", count, count * devices, allowed(cluster))
      end
   end
end

local function number(value)
   if value == nil or value >= NONE or value < 1 then return nil end
   return value
end

local function devices(jd, uid, parts)
   if ours(jd.licenses) and not is_trusted(uid) then
      return refuse("licence %s is not asked for by name", ours(jd.licenses))
   end
   if gres(jd) then
      return refuse("--gres=vipu is not for this site: the number of hosts (-N) decides how many devices a job gets")
   end
   local found, others = within(jd, parts)
   if next(found) == nil then return slurm.SUCCESS end
   local named = expand(jd.req_nodes or "")
   local least = number(jd.min_nodes) or 1
   local most = math.max(least, number(jd.max_nodes) or least)
   local why
   if #named >= most and #named > 0 then
      why = problem(named)
   elseif not others then
      why = counted(found, least, most)
   end
   if why then return refuse("%s", why) end
   -- Its hosts are its own: two jobs on one host would want the same machines.
   jd.shared = 0
   if either_or(jd) then
      return refuse("-L '%s': Slurm takes no licence list with | beside other licences, and jobs of these "
         .. "hosts have one", jd.licenses)
   end
   with_licences(jd, { "podwright_job:1" })
   return slurm.SUCCESS
end

